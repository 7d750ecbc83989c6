"""Dropout as a tap: on whatever enters the residual stream. The model knows none."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from transformer.tap import Fused


class Dropout(Fused):
    """Draws from torch's default generator: no kernel that drops takes another.

    Attention weights are left whole: no fused kernel drops them, and without one a step takes a third longer."""

    def __init__(self, rate: float):
        self.rate = rate

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate)
