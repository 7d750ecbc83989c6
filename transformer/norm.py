"""Normalisation. Statistics are taken in at least fp32, in fp64 when the model is fp64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer.config import Norm
from transformer.native_training import NativeNorm


class RMSNorm(nn.Module):
    native: NativeNorm | None = None  # the same, compiled, for training

    def __init__(self, shape: tuple[int, ...], spec: Norm):
        super().__init__()
        self.eps = spec.eps
        self.unit_offset = spec.unit_offset
        self.weight = nn.Parameter(torch.ones(shape)) if spec.gain else None

    def forward(self, x: Tensor) -> Tensor:
        if self.native is not None and self.weight is not None and self.native.takes(x, self.weight):
            return self.native(x, self.weight)
        h = at_least_float32(x)
        one = h.new_ones(x.shape[-1])
        gain = one if self.weight is None else at_least_float32(self.weight)
        if self.weight is not None and self.unit_offset:
            gain = 1.0 + gain
        if gain.ndim == 1:
            return rms_norm(h, gain, self.eps).to(x.dtype)
        return (rms_norm(h, one, self.eps) * gain).to(x.dtype)  # a gain for each head


class _RMSNorm(torch.autograd.Function):
    """x / rms(x) · gain. The way back is LayerNorm's kernel, told that the mean is zero: twice as fast on a CPU as
    through each operation, and F.rms_norm is no faster than that."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, scale, gain)
        return (x * scale).mul_(gain)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        x, scale, gain = ctx.saved_tensors
        C = x.shape[-1]
        dx, dgain, _ = torch.ops.aten.native_layer_norm_backward(
            slope.contiguous(), x, [C], torch.zeros_like(scale), scale, gain, None, [True, True, False]
        )
        lost = (slope @ gain)[..., None] / C  # a mean that is taken away in LayerNorm, but not here
        return dx.add_(lost * scale), dgain, None


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return _RMSNorm.apply(x, gain, eps)  # type: ignore[no-untyped-call]


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
