"""What tfm promises of its own numbers, each as a function that measures how well a decoder keeps it.

However a sequence is fed, its logits are the same: one by one, in chunks, alone or with others, in a cache whose
rows differ in length, that has grown, or that was cropped; with the softmax fused or in the open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from transformer import cache as cache_module
from transformer.cache import KVCache
from transformer.mask import Mask
from transformer.model import Transformer
from transformer.tap import Fused, Rule, open_attention


class Measured(NamedTuple):
    error: float
    bound: float

    @property
    def kept(self) -> bool:
        return self.error <= self.bound


def worst(measurements: Iterator[Measured]) -> Measured:
    return max(measurements, key=lambda m: m.error / m.bound if m.bound else m.error)


def distance(got: Tensor, wanted: Tensor) -> Measured:
    """How far logits are from what they should be, and how far they may be at their precision."""
    bound = 1e-10 if wanted.dtype == torch.float64 else 1e-5 * max(10.0, float(wanted.abs().max()))
    first, second = wanted.topk(2).values.unbind(-1)
    changed = (got.argmax(-1) != wanted.argmax(-1)) & (first - second > bound)
    return Measured(torch.inf if changed.any() else float((got - wanted).abs().max()), bound)


class InTheOpen(Fused):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        return open_attention(q, k, v, mask, rule)


def new_cache(model: Transformer, rows: int, length: int, step: int) -> KVCache:
    """With as little room as a cache can have, so that it must grow and its rings must wrap."""
    cache = KVCache(model.config, rows, capacity=1, step=step, dtype=model.dtype)
    cache.horizons[:] = length
    return cache


def feed(model: Transformer, cache: KVCache, ids: Tensor, sizes: Sequence[int]) -> Tensor:
    """The logits of ids (B, T) fed in chunks of these sizes, over and over."""
    chunks, start, size = [], 0, cycle(sizes)
    while start < ids.shape[1]:
        chunk = ids[:, start : start + next(size)]
        cache.reserve(int(cache.lengths.max()) + chunk.shape[1])
        chunks.append(model(chunk, cache))
        start += chunk.shape[1]
    return torch.cat(chunks, dim=1)


def cached(model: Transformer, ids: Tensor) -> Measured:
    return distance(feed(model, new_cache(model, *ids.shape, step=1), ids, [1]), model(ids))


def chunked(model: Transformer, ids: Tensor) -> Measured:
    whole, length = model(ids), ids.shape[1]
    return worst(
        distance(feed(model, new_cache(model, *ids.shape, step=max(sizes)), ids, sizes), whole)
        for sizes in ([2], [7], [length], [5, 1, 1])
    )


def batched(model: Transformer, ids: Tensor) -> Measured:
    whole = model(ids)
    return worst(distance(model(row[None]), whole[i][None]) for i, row in enumerate(ids))


def ragged(model: Transformer, ids: Tensor) -> Measured:
    """Each row has a prompt of its own length; then all go on together, one by one and two by two."""
    rows, length = ids.shape
    prompts = [1 + row * (length // 2) // rows for row in range(rows)]
    new = length - max(prompts)
    cache = new_cache(model, rows, length, step=length)
    cache.horizons[:] = torch.tensor(prompts) + new
    cache.reserve(length)
    for row, prompt in enumerate(prompts):
        model(ids[row : row + 1, :prompt], cache.rows(row, row + 1))
    together = torch.stack([ids[row, prompt : prompt + new] for row, prompt in enumerate(prompts)])
    logits = feed(model, cache, together, [1, 1, 2])
    return worst(
        distance(logits[row][None], model(ids[row : row + 1, : prompt + new])[:, prompt:])
        for row, prompt in enumerate(prompts)
    )


def cropped(model: Transformer, ids: Tensor) -> Measured:
    """Back some tokens, twice, and on with others."""
    length, back = ids.shape[1], 5
    cache = new_cache(model, *ids.shape, step=back)
    feed(model, cache, ids, [back])
    other = ids.clone()
    other[:, -back:] = ids[:, :back]
    for _ in range(2):
        cache.crop(length - back)
        logits = feed(model, cache, other[:, -back:], [2, 1])
    return distance(logits, model(other)[:, -back:])


def grown(model: Transformer, ids: Tensor) -> Measured:
    with mock.patch.object(cache_module, "BLOCK", 4):
        return distance(feed(model, new_cache(model, *ids.shape, step=3), ids, [3]), model(ids))


def recorded(model: Transformer, ids: Tensor) -> Measured:
    whole, tap = model(ids), InTheOpen()
    cache, half = new_cache(model, *ids.shape, step=ids.shape[1]), ids.shape[1] // 2
    cache.reserve(ids.shape[1])
    parts = [model(ids[:, :half], cache, tap), model(ids[:, half:], cache, tap)]
    return worst(distance(got, whole) for got in (model(ids, tap=tap), torch.cat(parts, dim=1)))


PROMISES: dict[str, Callable[[Transformer, Tensor], Measured]] = {
    "cached": cached,
    "chunked": chunked,
    "batched": batched,
    "ragged": ragged,
    "cropped": cropped,
    "grown": grown,
    "recorded": recorded,
}
