"""Integrated gradients: how much of a logit each input token accounts for, against a text of blank tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.config import Config
from transformer.explain.target import Target
from transformer.model import Transformer
from transformer.tap import Fused

TOKENS = 256  # of all interpolated texts in one pass, if one text is not longer


class Integrated(NamedTuple):
    """`shares` add up to logit - blank_logit, the logit of a text of blanks; `error` says how nearly."""

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


def integrated_gradients(
    model: Transformer, ids: Sequence[int], target: Target, blank: int, steps: int = 50
) -> Integrated:
    """The straight way from a text of `blank` tokens to this one, by Gauss-Legendre quadrature. Shares are sums
    over the embedding's dimensions, so that they keep their sign and add up."""
    device = model.embed.weight.device
    with torch.no_grad():
        text = _embedding(model, torch.tensor([ids], device=device))
        blanks = _embedding(model, torch.full((1, len(ids)), blank, device=device))
        logit, blank_logit = (float(_logits(model, x, target)[0]) for x in (text, blanks))
    places, weights = gauss_legendre(steps)
    total = torch.zeros_like(text[0])
    for some in torch.arange(steps).split(max(1, TOKENS // len(ids))):
        at = places[some].to(text)[:, None, None]
        x = (blanks + at * (text - blanks)).requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(_logits(model, x, target).sum(), x)
        total += (gradient * weights[some].to(text)[:, None, None]).sum(0)
    shares = (total * (text - blanks)[0]).double().sum(-1)
    return Integrated(shares.tolist(), logit, blank_logit, steps)


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


def _logits(model: Transformer, x: Tensor, target: Target) -> Tensor:
    ids = torch.zeros(x.shape[:2], dtype=torch.int64, device=x.device)
    return target.of(model, model.hidden(ids, tap=Embedded(x)))


def gauss_legendre(count: int) -> tuple[Tensor, Tensor]:
    """Places in (0, 1) and weights that integrate polynomials up to degree 2·count - 1 exactly: the eigenvalues of
    the Legendre recurrence's matrix, and the squares of its eigenvectors' first entries."""
    n = torch.arange(1, count, dtype=torch.float64)
    beside = n / (4 * n.square() - 1).sqrt()
    matrix = torch.diag(beside, 1) + torch.diag(beside, -1)
    places, vectors = torch.linalg.eigh(matrix)
    assert math.isclose(float(vectors[0].square().sum()), 1.0)
    return (places + 1) / 2, vectors[0].square()
