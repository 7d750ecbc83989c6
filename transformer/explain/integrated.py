"""Integrated gradients: how much of a logit each input token accounts for, against a text that says nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.config import Config
from transformer.explain.target import Target
from transformer.model import Transformer
from transformer.tap import Fused

TOKENS = 256  # of all interpolated texts in one pass, if one text is not longer
STEPS = (50, 100, 200)  # as many as it takes
COMPLETE = 0.02  # of the logit's change: an error below this is small enough


class Integrated(NamedTuple):
    """`shares` add up to logit - blank_logit, that of the blank text; `error` says how nearly."""

    shares: list[float]
    logit: float
    blank_logit: float
    steps: int

    @property
    def error(self) -> float:
        return sum(self.shares) - (self.logit - self.blank_logit)


class Embedded(Fused):
    """Puts other vectors (B, T, C) in place of the embedding; None lets it pass and keeps it."""

    def __init__(self, x: Tensor | None = None):
        self.x = x

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        if part != "embedding":
            return x
        self.x = x if self.x is None else self.x
        return self.x


def integrated_gradients(model: Transformer, ids: Sequence[int], target: Target) -> Integrated:
    """The straight way from a blank text to this one, by Gauss-Legendre quadrature. In the blank text every token
    but the first is the mean of the vocabulary; the first is the sink of most heads, and without it a model is so
    far from anything it has learned that no number of steps adds up. Shares are sums over the embedding's
    dimensions, so that they keep their sign."""
    with torch.no_grad():
        text = _embedding(model, torch.tensor([ids], device=model.device))
        blank = _blank(model, text)
        read = _reader(model, target)
        logit, blank_logit = (float(read(x)[0]) for x in (text, blank))
    for steps in STEPS:
        shares = _integral(read, text, blank, steps)
        found = Integrated(shares.tolist(), logit, blank_logit, steps)
        if abs(found.error) <= COMPLETE * max(1.0, abs(logit - blank_logit)):
            break
    return found


def _integral(read: Callable[[Tensor], Tensor], text: Tensor, blank: Tensor, steps: int) -> Tensor:
    """(T,), fp64"""
    places, weights = gauss_legendre(steps)
    total = torch.zeros_like(text[0])
    for some in torch.arange(steps).split(max(1, TOKENS // text.shape[1])):
        at, weight = (x[some].to(text)[:, None, None] for x in (places, weights))
        x = (blank + at * (text - blank)).requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(read(x).sum(), x)
        total += (gradient * weight).sum(0)
    return (total * (text - blank)[0]).double().sum(-1)


def _blank(model: Transformer, text: Tensor) -> Tensor:
    """The mean of the vocabulary in every place, placed as a token would be; the first token stays."""
    mean = model.embed_in(model.embed_scale(model.embed.weight.mean(0).to(text))).expand(text.shape)
    blank = model.embed_norm(model.place(mean, torch.arange(text.shape[1], device=text.device)[None]))
    return torch.cat((text[:, :1], blank[:, 1:]), dim=1)


def memory(config: Config, length: int, item: int = 4) -> int:
    """Bytes that a pass forth and back takes: what every layer keeps for its gradient."""
    mlp = max(layer.mlp_width for layer in config.layers)
    layer = 16 * config.width + 4 * (config.heads + config.kv_heads) * config.head_dim + 4 * mlp
    return max(TOKENS, length) * len(config.layers) * layer * item


def _embedding(model: Transformer, ids: Tensor) -> Tensor:
    tap = Embedded()
    model.hidden(ids, tap=tap)
    assert tap.x is not None
    return tap.x


def _reader(model: Transformer, target: Target) -> Callable[[Tensor], Tensor]:
    """Embeddings (B, T, C) -> the logit (B,)"""
    read = target.reader(model)

    def logit(x: Tensor) -> Tensor:
        ids = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)
        return read(model.hidden(ids, tap=Embedded(x)))

    return logit


def gauss_legendre(count: int) -> tuple[Tensor, Tensor]:
    """Places in (0, 1) and weights that integrate polynomials up to degree 2·count - 1 exactly: the eigenvalues of
    the Legendre recurrence's matrix, and the squares of its eigenvectors' first entries."""
    n = torch.arange(1, count, dtype=torch.float64)
    beside = n / (4 * n.square() - 1).sqrt()
    matrix = torch.diag(beside, 1) + torch.diag(beside, -1)
    places, vectors = torch.linalg.eigh(matrix)
    return (places + 1) / 2, vectors[0].square()
