"""Dropout as a tap: on whatever enters the residual stream. The model knows none."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.tap import Fused

LOTS = 1 << 16  # a number is dropped by one of these: four come of one draw, and drawing is what takes time


class Dropout(Fused):
    """Draws from torch's default generator: it is what a run seeds anew at every step.

    Attention weights are left whole: no fused kernel drops them, and without one a step takes a third longer."""

    def __init__(self, rate: float):
        self.dropped = round(rate * LOTS)

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= self.dropped - LOTS // 2
        return x * kept.to(x.dtype).mul_(LOTS / (LOTS - self.dropped))
