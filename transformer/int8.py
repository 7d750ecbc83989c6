"""Matrices in eight bits: codes from -128 to 127, and the size of a step, for a row or for some numbers of it.

`quantize_rows` makes such codes of any matrix; files may bring their own, which are kept as they are. Weights only:
what is multiplied with them stays as it is, so no row of a batch depends on its neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.errors import InputError
from transformer.linear import Fused, Linear
from transformer.mlp import Mixture
from transformer.native import FEW, NativeMatrix

BLOCK = 1 << 20  # numbers made of codes at once, few enough to stay in the processor's cache


class Codes(NamedTuple):
    """A matrix (N, K) whose rows consist of G groups: codes × the group's scale + its offset."""

    codes: Tensor  # (N, K) int8
    scales: Tensor  # (N, G)
    offsets: Tensor | None = None  # (N, G)

    def numbers(self) -> Tensor:
        """The matrix itself, made anew each time."""
        groups = self.codes.to(self.scales.dtype).unflatten(1, (self.scales.shape[1], -1)) * self.scales[..., None]
        return (groups if self.offsets is None else groups + self.offsets[..., None]).flatten(1)

    def rows(self, which: slice | Tensor) -> Codes:
        return Codes(*(None if part is None else part[which] for part in self))  # type: ignore[arg-type]


class Int8Linear(nn.Module):
    """Stands in for a `Linear` or `Fused` of the same sections."""

    native: NativeMatrix | None = None

    def __init__(self, matrix: Codes, bias: nn.Parameter | None, sections: dict[str, int]):
        super().__init__()
        self.matrix, self.bias, self.sections = matrix, bias, sections

    @property
    def weight(self) -> Tensor:
        return self.matrix.numbers()

    def split(self, y: Tensor) -> tuple[Tensor, ...]:
        return y.split(tuple(self.sections.values()), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        (N, K), G = self.matrix.codes.shape, self.matrix.scales.shape[1]
        if self.native is not None and self.native.takes(x):
            return self.native(x)
        if x.requires_grad:
            return F.linear(x, self.weight, self.bias)
        by_rows = G == 1 and self.matrix.offsets is None
        if by_rows and x.numel() <= FEW * K and _torch_is_fast(x):
            codes, scales = self.matrix.codes, self.matrix.scales[:, 0]
            y = torch._weight_int8pack_mm(x.reshape(-1, K), codes, scales).view(*x.shape[:-1], N)
        else:
            some = max(1, BLOCK // K)
            parts = (self.matrix.rows(slice(start, start + some)).numbers() for start in range(0, N, some))
            y = torch.cat([F.linear(x, part.to(x.dtype)) for part in parts], dim=-1)
        return y if self.bias is None else y + self.bias


class Int8Embedding(nn.Module):
    """Stands in for an embedding: its rows become numbers as they are looked up."""

    scales: Tensor

    def __init__(self, matrix: Codes):
        super().__init__()
        self.matrix = matrix
        self.register_buffer("scales", matrix.scales, persistent=False)  # tells device and precision, as a weight would

    @property
    def weight(self) -> Tensor:
        return self.matrix.numbers()

    def forward(self, ids: Tensor) -> Tensor:
        return self.matrix.rows(ids.flatten()).numbers().view(*ids.shape, -1)


def quantize_rows(weight: Tensor) -> Codes:
    """Of weight (N, K), each row in 127 steps up and down."""
    steps = weight.abs().amax(dim=1, keepdim=True) / 127
    return Codes((weight / steps.where(steps > 0, 1.0)).round_().to(torch.int8), steps)


def matrices(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The matrices that are worth it, by name, with their shapes: all that every token is multiplied with."""
    if any(isinstance(module, Mixture) for module in model.modules()):
        raise InputError("eight bits are not supported for a mixture of experts")
    linears = {name: module for name, module in model.named_modules() if isinstance(module, Linear)}
    narrow = ("embed_in", "head_in")  # small, and between the embedding and everything else
    return {f"{name}.weight": tuple(linear.weight.shape) for name, linear in linears.items() if name not in narrow}


def replace_matrix(model: nn.Module, name: str, matrix: Codes, build: type[Int8Linear] = Int8Linear) -> None:
    """Puts an `Int8Linear`, or another kind of it, in the place of the module whose weight goes by that name."""
    place = name.removesuffix(".weight")
    parent, _, leaf = place.rpartition(".")
    linear = model.get_submodule(place)
    assert isinstance(linear, Linear)
    sections = linear.sections if isinstance(linear, Fused) else {}
    setattr(model.get_submodule(parent), leaf, build(matrix, linear.bias, sections))


def _torch_is_fast(x: Tensor) -> bool:
    """Whether torch's own product with eight-bit weights is vectorised for such x."""
    return x.dtype is torch.float32 and x.device.type == "cpu" and "AVX512" in torch.backends.cpu.get_cpu_capability()
