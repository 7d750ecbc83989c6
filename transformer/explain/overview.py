"""Who reads whom, at a glance: the mean over all heads, and the one head that the mean hides."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.config import Config
from transformer.recording import Observer, Rows


class Mean(Observer):
    """Attention averaged over all layers and heads: `weights` (rows, n)."""

    def __init__(self, config: Config, length: int, rows: range | None = None):
        self.length = length
        self.rows: range = range(length) if rows is None else rows
        self.share = 1.0 / (len(config.layers) * config.heads)
        self.weights = torch.empty(0)

    def memory(self) -> int:
        return 4 * len(self.rows) * self.length

    def attention(self, rows: Rows) -> None:
        if not len(self.weights):
            self.weights = torch.zeros(len(self.rows), self.length, device=rows.weights.device)
        first = int(rows.queries[0]) - self.rows.start
        part = self.weights[first : first + len(rows.queries), rows.keys]
        part.add_(rows.weights.sum(0), alpha=self.share)

    def of(self, i: int) -> Tensor:
        """What token i gives to itself and all before it: (i + 1,)"""
        return self.weights[i - self.rows.start, : i + 1]


class Sharp(NamedTuple):
    layer: int
    head: int
    token: int  # the one that is read
    weight: float


class Sharpest(Observer):
    """For every token, the head that reads another token most strongly, once the sink (the first token), the token
    itself and its predecessor are set aside: those three are what most heads read most of the time."""

    def __init__(self, length: int, rows: range | None = None):
        self.rows = range(length) if rows is None else rows
        self.weight = torch.zeros(length)
        self.layer, self.head, self.token = (torch.zeros(length, dtype=torch.int64) for _ in range(3))

    def attention(self, rows: Rows) -> None:
        i = rows.queries.cpu()
        keys = torch.arange(rows.keys.start, rows.keys.stop, device=rows.weights.device)
        aside = (keys == 0) | (keys >= rows.queries[:, None] - 1)  # (R, S); keys beyond the query weigh 0
        strongest, column = rows.weights.amax(0).masked_fill(aside, 0).max(-1)  # (R,)
        head = rows.weights[:, torch.arange(len(i)), column].argmax(0)
        better = (strongest.cpu() > self.weight[i]).nonzero()[:, 0]
        i = i[better]
        self.weight[i], self.layer[i] = strongest.cpu()[better].float(), rows.layer
        self.head[i], self.token[i] = head.cpu()[better], rows.first + column.cpu()[better]

    def of(self, i: int) -> Sharp | None:
        if not float(self.weight[i]):
            return None
        return Sharp(int(self.layer[i]), int(self.head[i]), int(self.token[i]), float(self.weight[i]))


class Entropy(Observer):
    """How widely a token reads: its rows' entropy over the largest possible, averaged over layers and heads."""

    def __init__(self, config: Config, length: int, rows: range | None = None):
        self.rows = range(length) if rows is None else rows
        self.windows = [layer.window or length for layer in config.layers]
        self.spread = torch.zeros(length)  # 0: one token; 1: all alike
        self.share = 1.0 / (len(config.layers) * config.heads)

    def attention(self, rows: Rows) -> None:
        nats = torch.special.entr(rows.weights).sum((0, 2)).cpu().float()  # (R,), summed over the heads
        visible = (rows.queries.cpu() + 1).clamp(max=self.windows[rows.layer])
        self.spread[rows.queries.cpu()] += torch.where(visible > 1, nats / visible.log(), 0.0) * self.share


def strongest(weights: Tensor, top: int, skip: int | None = 0) -> list[tuple[int, float]]:
    """The largest weights of one row and where they stand; `skip` leaves out one place, the sink's."""
    row = weights.clone()
    if skip is not None and skip < len(row):
        row[skip] = -math.inf
    values, places = row.topk(min(top, len(row)))
    return [(j, w) for j, w in zip(places.tolist(), values.tolist(), strict=True) if w > 0]
