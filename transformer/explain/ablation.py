"""Take heads away and see what the model would have said without them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from transformer.config import Config
from transformer.explain.predictions import log_probabilities
from transformer.mask import Mask
from transformer.model import Transformer
from transformer.tap import Fused, Rule

Head = tuple[int, int]  # layer, head
Mode = Literal["zero", "mean"]


class Ablate(Fused):
    """Heads read nothing ("zero"), or always the mean of what they have read so far in this text ("mean"): a mean
    over the whole text would tell a token about its future."""

    def __init__(self, heads: Collection[Head], mode: Mode = "zero"):
        self.heads, self.mode = heads, mode

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        y = super().attend(q, k, v, mask, rule)  # (B, H, T, D)
        here = [head for layer, head in self.heads if layer == rule.layer]
        if here:
            y = y.clone()
            y[:, here] = _running_mean(y[:, here]) if self.mode == "mean" else 0.0
        return y


def _running_mean(y: Tensor) -> Tensor:
    count = torch.arange(1, y.shape[2] + 1, device=y.device)[:, None]
    return (y.double().cumsum(2) / count).to(y.dtype)


class Outcome(NamedTuple):
    """log p of every token from the second on, and of the one that the untouched model would say next."""

    tokens: Tensor  # (n - 1,)
    next: float


def outcome(model: Transformer, ids: Sequence[int], next_id: int, heads: Collection[Head], mode: Mode) -> Outcome:
    x = model.hidden(torch.tensor([ids], device=model.device), tap=Ablate(heads, mode))[0]
    actual = torch.tensor([*ids[1:], next_id], device=x.device)
    parts = [logp.gather(1, actual[rows, None])[:, 0].cpu() for rows, logp in log_probabilities(model, x)]
    logp = torch.cat(parts)
    return Outcome(logp[:-1], float(logp[-1]))


def random_heads(config: Config, heads: Collection[Head], draws: int, seed: int) -> list[list[Head]]:
    """As many other heads as were given, drawn several times: what taking away just any heads does."""
    others = [(layer, head) for layer in range(len(config.layers)) for head in range(config.heads)]
    others = [head for head in others if head not in heads]
    random = torch.Generator().manual_seed(seed)
    size = min(len(heads), len(others))
    return [[others[i] for i in torch.randperm(len(others), generator=random)[:size].tolist()] for _ in range(draws)]
