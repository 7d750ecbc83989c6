"""Where a token stands: rotary angles, ALiBi slopes, the sinusoids of 2017. Pure functions of numbers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer.config import Alibi, Rope


class Rotation(NamedTuple):
    """The angles of some positions, as cos and sin of the rotated half-width: (B or 1, T, 1, dim / 2)."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Turns the first dim numbers of every head of x (B, T, H, D); the rest passes through."""
        return _Turn.apply(x, self.cos, self.sin)  # type: ignore[no-untyped-call]


class _Turn(torch.autograd.Function):
    """The way back is to turn back by the same angles: shorter than the one torch finds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(slope, cos, -sin), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(a, b) -> (a·cos - b·sin, b·cos + a·sin), with tables for all heads: then each product is one long loop."""
    a, b, rest = x.tensor_split((cos.shape[-1], 2 * cos.shape[-1]), dim=-1)
    heads = (-1, -1, x.shape[2], -1)
    along = torch.cat((cos, cos), dim=-1).expand(heads).contiguous()
    across = torch.cat((-sin, sin), dim=-1).expand(heads).contiguous()
    turned = torch.cat((a, b), dim=-1).mul_(along).add_(torch.cat((b, a), dim=-1).mul_(across))
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


def rotation(rope: Rope, positions: Tensor, horizons: list[int], dtype: torch.dtype) -> Rotation:
    """Angles for positions (B or 1, T). `horizons` is how long each row's sequence is going to be: scalings
    that depend on the length take it from there, once a sequence, so that cached keys stay valid."""
    wide = torch.promote_types(dtype, torch.float32)
    if rope.scaling in ("dynamic", "longrope") and len(set(horizons)) > 1:
        rows = [_frequencies(rope, horizon, wide, positions.device) for horizon in horizons]
        frequencies = torch.stack(rows)[:, None, None]  # (B, 1, 1, dim / 2)
    else:
        frequencies = _frequencies(rope, horizons[0], wide, positions.device)
    angles = positions[..., None, None].to(wide) * frequencies  # (B or 1, T, 1, dim / 2)
    cos, sin = angles.cos() * rope.attention_factor, angles.sin() * rope.attention_factor
    return Rotation(cos.to(dtype), sin.to(dtype))


def _frequencies(rope: Rope, horizon: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Radians a position for each pair of dimensions, fastest first: (dim / 2,)."""
    beyond = horizon > rope.original_context
    if rope.scaling == "longrope":
        return _longrope(rope, rope.long_factor if beyond else rope.short_factor, dtype, device)
    if rope.scaling == "dynamic" and beyond:
        stretch = rope.factor * horizon / rope.original_context - (rope.factor - 1)
        return _plain(rope.theta * stretch ** (rope.dim / (rope.dim - 2)), rope.dim, dtype, device)
    return _fixed_frequencies(rope, dtype, device)


@lru_cache(maxsize=16)
def _fixed_frequencies(rope: Rope, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # kept beyond this pass, perhaps into one that wants gradients
        plain = _plain(rope.theta, rope.dim, dtype, device)
        if rope.scaling == "linear":
            return plain / rope.factor
        if rope.scaling == "yarn":
            keep = 1 - _yarn_ramp(rope, dtype, device)
            return plain / rope.factor * (1 - keep) + plain * keep
        if rope.scaling == "llama3":
            turns = rope.original_context * plain / (2 * math.pi)  # full turns within the original context
            keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
            keep = keep.clamp(0, 1)
            return plain / rope.factor * (1 - keep) + plain * keep
        return plain


def _plain(theta: float, dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2, device=device).to(dtype) / dim)


def _longrope(rope: Rope, factors: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return _plain(rope.theta, rope.dim, dtype, device) / torch.tensor(factors, dtype=dtype, device=device)


def _yarn_ramp(rope: Rope, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0 where a frequency is kept, 1 where it is interpolated, linear in between: (dim / 2,)."""

    def dimension_of(turns: float) -> float:
        return rope.dim * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    steps = torch.arange(rope.dim // 2, dtype=dtype, device=device)
    return ((steps - low) / (high - low if high != low else 0.001)).clamp(0, 1)


def alibi_slopes(heads: int) -> list[float]:
    """A geometric series from 2^(-8/n); for n not a power of two, the gaps of the next one fill up."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return slopes


def alibi_bias(alibi: Alibi, heads: int, keys: Tensor, dtype: torch.dtype) -> Tensor:
    """Added to the scores: (B or 1, H, 1, S) for key positions (B or 1, S). It grows with the key's own
    position, which differs from minus the distance only by what the softmax cancels."""
    narrow = torch.bfloat16 if alibi.rounded else torch.promote_types(dtype, torch.float32)
    slopes = torch.tensor(alibi_slopes(heads), dtype=torch.float64, device=keys.device).to(narrow)
    bias = slopes[:, None, None] * keys[:, None, None, :]  # (H, 1, 1) by (B, 1, 1, S)
    return bias.to(dtype) * alibi.scale


def sinusoids(positions: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """The fixed embedding of the 2017 paper: sin in even, cos in odd dimensions. (..., C)"""
    wide = torch.promote_types(dtype, torch.float32)
    frequencies = 10_000.0 ** (-torch.arange(0, width, 2, device=positions.device).to(wide) / width)
    angles = positions[..., None].to(wide) * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(dtype)
