"""Dropout as a tap: on the attention weights and on whatever enters the residual stream. The model knows none."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from transformer.mask import Mask
from transformer.tap import Rule, fused_attention


class Dropout:
    """Draws from torch's default generator: no kernel that drops takes another."""

    def __init__(self, rate: float):
        self.rate = rate

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        return fused_attention(q, k, v, mask, rule, self.rate)

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate)
