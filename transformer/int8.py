"""Matrices in eight bits: a row becomes 127 steps up and down, and the size of its step.

Weights only: what is multiplied with them stays as it is, so no row of a batch depends on its neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.errors import InputError
from transformer.linear import Fused, Linear
from transformer.mlp import Mixture
from transformer.native import FEW, NativeMatrix

BLOCK = 1 << 20  # numbers made of codes at once, few enough to stay in the processor's cache


class Int8Linear(nn.Module):
    """Stands in for a `Linear` or `Fused` of the same sections."""

    native: NativeMatrix | None = None
    codes: Tensor
    scales: Tensor

    def __init__(self, codes: Tensor, scales: Tensor, bias: nn.Parameter | None, sections: dict[str, int]):
        super().__init__()
        self.register_buffer("codes", codes)  # (N, K) int8
        self.register_buffer("scales", scales)  # (N,)
        self.bias, self.sections = bias, sections

    @property
    def weight(self) -> Tensor:
        """The matrix itself, made anew each time."""
        return self.codes.to(self.scales.dtype) * self.scales[:, None]

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        return self(x).split(tuple(self.sections.values()), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        K = self.codes.shape[1]
        if self.native is not None and self.native.takes(x):
            return self.native(x)
        if x.requires_grad:
            return F.linear(x, self.weight, self.bias)
        if x.numel() <= FEW * K and _torch_is_fast(x):
            y = torch._weight_int8pack_mm(x.reshape(-1, K), self.codes, self.scales).view(*x.shape[:-1], -1)
        else:
            y = self._block_by_block(x) * self.scales
        return y if self.bias is None else y + self.bias

    def _block_by_block(self, x: Tensor) -> Tensor:
        rows = max(1, BLOCK // self.codes.shape[1])
        return torch.cat([F.linear(x, codes.to(x.dtype)) for codes in self.codes.split(rows)], dim=-1)


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight (N, K) -> codes (N, K) and the step of each row (N,)"""
    steps = weight.abs().amax(dim=1) / 127
    codes = (weight / steps.where(steps > 0, 1.0)[:, None]).round_()
    return codes.to(torch.int8), steps


def matrices(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The matrices that are worth it, by name, with their shapes: all that every token is multiplied with."""
    if any(isinstance(module, Mixture) for module in model.modules()):
        raise InputError("eight bits are not supported for a mixture of experts")
    linears = {name: module for name, module in model.named_modules() if isinstance(module, Linear)}
    narrow = ("embed_in", "head_in")  # small, and between the embedding and everything else
    return {f"{name}.weight": tuple(linear.weight.shape) for name, linear in linears.items() if name not in narrow}


def replace_matrix(model: nn.Module, name: str, codes: Tensor, scales: Tensor) -> None:
    """Puts an `Int8Linear` in the place of the module whose weight goes by that name."""
    place = name.removesuffix(".weight")
    parent, _, leaf = place.rpartition(".")
    linear = model.get_submodule(place)
    assert isinstance(linear, Linear)
    sections = linear.sections if isinstance(linear, Fused) else {}
    setattr(model.get_submodule(parent), leaf, Int8Linear(codes, scales, linear.bias, sections))


def _torch_is_fast(x: Tensor) -> bool:
    """Whether torch's own product with eight-bit weights is vectorised for such x."""
    return x.dtype is torch.float32 and x.device.type == "cpu" and "AVX512" in torch.backends.cpu.get_cpu_capability()
