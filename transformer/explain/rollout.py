"""Attention rollout: attention followed down through all layers, each mixed half and half with the stream itself."""

from __future__ import annotations

import torch

from transformer.config import Config
from transformer.recording import Observer, Rows


class Rollout(Observer):
    """`rolled[i, j]` is how much of token i's information comes from token j by the rollout, `even[i, j]` how much
    it would be if every row read alike all that it can see: under a causal mask the first token gains with every
    layer by arithmetic alone. Both (n, n)."""

    def __init__(self, config: Config, length: int):
        self.rows = range(length)  # of a longer text, what a token up to there cannot see does not matter
        self.length, self.windows = length, [layer.window for layer in config.layers]
        self.layer = self.rolled = self.even = torch.empty(0)

    def memory(self) -> int:
        return 4 * 5 * self.length**2  # one layer, two products, and what computing them takes

    def attention(self, rows: Rows) -> None:
        if int(rows.queries[0]) == 0:
            self.layer = torch.zeros(self.length, self.length, device=rows.weights.device)
        self.layer[rows.queries, rows.keys] = rows.weights.mean(0).float()
        if int(rows.queries[-1]) == self.length - 1:
            self.rolled = _rolled(self.layer, self.rolled)
            self.even = _rolled(self._even(rows.layer), self.even)

    def _even(self, layer: int) -> torch.Tensor:
        """Every row gives the same to all that it may read."""
        alike = torch.ones_like(self.layer).tril()
        if (window := self.windows[layer]) is not None:
            alike = alike.triu(1 - window)
        return alike / alike.sum(1, keepdim=True)


def _rolled(layer: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """(layer + 1) / 2, whose rows sum to one again, times what came before."""
    mixed = layer / 2
    mixed.diagonal().add_(0.5)
    return mixed @ below if len(below) else mixed
