"""The attention of chosen layers and heads, row by row, as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from transformer.config import Config
from transformer.recording import Observer, Rows

Which = int | Literal["mean"]


class Matrix(Observer):
    """`weights[layer, head]` is (rows, n): what each chosen row gives to every token. "mean" stands for all layers,
    or all heads, averaged."""

    def __init__(
        self, config: Config, length: int, layers: Sequence[Which], heads: Sequence[Which], rows: Sequence[int]
    ):
        self.chosen = [(layer, head) for layer in layers for head in heads]
        self.depth, self.length = len(config.layers), length
        self.layers = None if "mean" in layers else {layer for layer in layers if layer != "mean"}
        self.rows: list[int] = sorted(rows)
        self.place = {row: place for place, row in enumerate(self.rows)}
        self.weights: dict[tuple[Which, Which], Tensor] = {}

    def memory(self) -> int:
        return 4 * len(self.chosen) * len(self.rows) * self.length

    def attention(self, rows: Rows) -> None:
        places = [self.place[row] for row in rows.queries.tolist()]
        for layer, head in self.chosen:
            if layer not in (rows.layer, "mean"):
                continue
            seen = rows.weights.mean(0) if head == "mean" else rows.weights[head]
            if (layer, head) not in self.weights:
                self.weights[layer, head] = torch.zeros(len(self.rows), self.length, device=seen.device)
            share = 1.0 / self.depth if layer == "mean" else 1.0
            self.weights[layer, head][places, rows.keys] += seen.float() * share
