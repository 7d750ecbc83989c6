"""The residual stream, followed from what is written into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transformer.model import PostNormBlock, Transformer
from transformer.recording import Observer


class Stream(Observer):
    """Adds up what the blocks write, at all positions or at some, and calls `after(layer, x)` behind each block,
    with layer -1 behind the embedding; x is (positions, C)."""

    def __init__(
        self,
        model: Transformer,
        positions: Sequence[int] | None = None,
        after: Callable[[int, Tensor], None] = lambda layer, x: None,
    ):
        self.blocks = model.blocks
        self.positions = None if positions is None else torch.tensor(positions, dtype=torch.int64)
        self.after = after
        self.x = torch.empty(0)

    def stream(self, layer: int, part: str, x: Tensor) -> None:
        x = x if self.positions is None else x[self.positions.to(x.device)]
        self.x = x if part == "embedding" else self._added(layer, part, x)
        if part != "attention":
            self.after(layer, self.x)

    def _added(self, layer: int, part: str, x: Tensor) -> Tensor:
        block, total = self.blocks[layer], self.x + x
        if not isinstance(block, PostNormBlock):
            return total
        return block.attention_norm(total) if part == "attention" else block.mlp_norm(total)
