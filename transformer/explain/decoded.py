"""Rows kept while decoding: what the model saw when it chose a token."""

from __future__ import annotations

from torch import Tensor

from transformer.explain.stream import Stream
from transformer.model import Transformer
from transformer.recording import Observer, Rows, show


class Decoded(Observer):
    """Watches a prompt and its continuation go through the cache and keeps some rows of it: every head's weights, and
    the stream behind the last block."""

    def __init__(self, model: Transformer, rows: range):
        self.rows: range = rows
        self.kept: dict[int, list[Rows]] = {row: [] for row in rows}
        self.ends: dict[int, Tensor] = {}  # (C,) each
        self.length = 0  # tokens that have gone through
        self.last_layer = len(model.blocks) - 1
        self.end = Stream(model, after=self._after)

    def attention(self, rows: Rows) -> None:
        for position in rows.queries.tolist():
            one = rows.only((position,))
            self.kept[position].append(one._replace(weights=one.weights.clone(), values=None))

    def stream(self, layer: int, part: str, x: Tensor) -> None:
        self.end.stream(layer, part, x)

    def _after(self, layer: int, x: Tensor) -> None:
        if layer == self.last_layer:
            new = range(self.length, self.length + len(x))
            self.ends |= {row: x[row - self.length].clone() for row in self.rows if row in new}
            self.length = new.stop

    def show(self, row: int, *observers: Observer) -> None:
        """What was kept of a row's attention, to observers that come later."""
        for rows in self.kept[row]:
            show(rows, observers)
