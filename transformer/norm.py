"""Normalisation. Statistics are taken in at least fp32, in fp64 when the model is fp64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer.config import Norm


class RMSNorm(nn.Module):
    def __init__(self, shape: tuple[int, ...], spec: Norm):
        super().__init__()
        self.eps = spec.eps
        self.unit_offset = spec.unit_offset
        self.weight = nn.Parameter(torch.ones(shape)) if spec.gain else None

    def forward(self, x: Tensor) -> Tensor:
        h = over_rms(at_least_float32(x), self.eps)
        if self.weight is not None:
            h = h * (1.0 + at_least_float32(self.weight) if self.unit_offset else self.weight)
        return h.to(x.dtype)


class _OverRMS(torch.autograd.Function):
    """x / rms(x). Torch's own way back, through each operation or its rms_norm, takes half as long again on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        along = torch.linalg.vecdot(slope, y)[..., None] / y.shape[-1]  # what only changes the length is lost
        return torch.addcmul(slope, y, along, value=-1).mul_(scale), None


def over_rms(x: Tensor, eps: float) -> Tensor:
    return _OverRMS.apply(x, eps)  # type: ignore[no-untyped-call]


class LayerNorm(nn.Module):
    def __init__(self, shape: tuple[int, ...], spec: Norm):
        super().__init__()
        self.eps = spec.eps
        self.weight = nn.Parameter(torch.ones(shape)) if spec.gain else None
        self.bias = nn.Parameter(torch.zeros(shape)) if spec.bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.weight is None or self.weight.ndim == 1:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
        # A gain for each head: torch's kernel would normalise over the heads as well.
        return F.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight


class AcrossHeads(RMSNorm):
    """Normalises all heads of a token together: (B, T, H, D) as one row of H·D."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(-2)).view_as(x)


def build_norm(shape: tuple[int, ...], spec: Norm) -> nn.Module:
    return RMSNorm(shape, spec) if spec.kind == "rms" else LayerNorm(shape, spec)


def at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
