"""Is it true? The same numbers by other ways, with the largest differences and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.explain.attribution import Written, attribute
from transformer.explain.predictions import BLOCK
from transformer.explain.target import Target
from transformer.generate import CHUNK, new_cache
from transformer.model import Transformer
from transformer.recording import Observer, Recorder, Rows

ALONE = 64  # tokens at the end that go through the cache one by one
ROW_SUM, GAP = 1e-6, 1e-3
ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Check(NamedTuple):
    name: str
    value: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.value <= self.bound  # False for nan


class Sums(Observer):
    """How far rows are from summing to one, and the largest weight on a token that is yet to come."""

    rows = None

    def __init__(self) -> None:
        self.error = self.leak = 0.0

    def attention(self, rows: Rows) -> None:
        self.error = max(self.error, float((rows.weights.double().sum(-1) - 1).abs().max()))
        keys = torch.arange(rows.keys.start, rows.keys.stop, device=rows.queries.device)
        self.leak = max(self.leak, float((rows.weights * (keys > rows.queries[:, None])).max()))


def verify(model: Transformer, ids: Sequence[int]) -> list[Check]:
    tokens = torch.tensor([ids], device=model.device)
    last = len(ids) - 1
    sums, written = Sums(), Written(model, last)
    recorded = model.hidden(tokens, tap=Recorder(sums, written))[0]
    fused = model.hidden(tokens)[0]
    cached = _through_cache(model, tokens)
    other = tokens.clone()
    half = -(-len(ids) // 2)
    other[:, half:] = (other[:, half:] + 1) % model.config.vocab_size
    unmoved = model.hidden(other)[0, :half]

    largest, top = _largest(model, fused)
    rounding = ROUNDING[fused.dtype]
    bound = rounding * max(10.0, largest)
    attribution = attribute(model, written, recorded, Target(last, top))
    gap = GAP if fused.dtype in (torch.float32, torch.float64) else bound
    return [
        Check("logits: recorded, fused kernel", _difference(model, recorded, fused), bound),
        Check("logits: through the cache, in one piece", _difference(model, cached, fused), bound),
        Check("logits: later tokens changed, unchanged", _difference(model, unmoved, fused[:half]), bound),
        Check("attention on later tokens", sums.leak, 0.0),
        Check("attention rows: distance of the sum from 1", sums.error, ROW_SUM),
        Check("attribution: sum of the parts, logit", abs(attribution.gap), gap),
    ]


def _through_cache(model: Transformer, tokens: Tensor) -> Tensor:
    """In chunks, the last tokens one by one, as generate does it."""
    n = tokens.shape[1]
    cache = new_cache(model, capacity=n)
    cache.horizons[0] = n
    steps = [CHUNK] * ((n - ALONE) // CHUNK) if n > ALONE else []
    if (rest := n - ALONE - sum(steps)) > 0:
        steps.append(rest)
    steps += [1] * (n - sum(steps))
    return torch.cat([model.hidden(part, cache) for part in tokens.split(steps, dim=1)], dim=1)[0]


def _blocks(model: Transformer, n: int) -> Iterator[slice]:
    step = max(1, BLOCK // model.config.vocab_size)
    return (slice(start, start + step) for start in range(0, n, step))


def _difference(model: Transformer, a: Tensor, b: Tensor) -> float:
    """The largest difference of two streams' logits."""
    gaps = [(model.logits(a[None, s]) - model.logits(b[None, s])).abs().max() for s in _blocks(model, len(a))]
    return float(torch.stack(gaps).max())


def _largest(model: Transformer, x: Tensor) -> tuple[float, int]:
    """The largest logit by size, and the likeliest last token."""
    sizes = [model.logits(x[None, s]).abs().max() for s in _blocks(model, len(x))]
    return float(torch.stack(sizes).max()), int(model.logits(x[None, -1:]).argmax())
