"""Matrix products: y = x·Wᵀ + b, one or several at once."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from transformer.native import NativeMatrix


class Linear(nn.Linear):
    native: NativeMatrix | None = None  # the same, compiled

    def forward(self, x: Tensor) -> Tensor:
        if self.native is not None and self.native.takes(x):
            return self.native(x)
        return F.linear(x, self.weight, self.bias)


class Fused(Linear):
    """Several projections of one input as one product; `sections` names them and gives their widths."""

    def __init__(self, width: int, sections: dict[str, int], bias: bool):
        super().__init__(width, sum(sections.values()), bias)
        self.sections = sections

    def split(self, y: Tensor) -> tuple[Tensor, ...]:
        return y.split(tuple(self.sections.values()), dim=-1)
