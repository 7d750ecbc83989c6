"""The block formats of ggml: how many numbers a block holds, in how many bytes, and what they are.

A format's function takes blocks (N, bytes) of uint8 and gives their numbers (N, width) in fp32, all blocks at once.
Everywhere d is the block's scale and m, where there is one, what is added to it or taken from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK = 1 << 19  # numbers made at once: few enough that what lies between stays in the processor's cache


class Format(NamedTuple):
    width: int  # numbers a block
    size: int  # bytes a block
    numbers: Callable[[Tensor], Tensor]


def dequantize(name: str, data: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The numbers of all blocks in data (bytes,), a tensor's rows one after the other, in fp32."""
    import torch

    width, size, numbers = FORMATS[name]
    blocks = data.view(-1, size)
    out = torch.empty(len(blocks), width)
    for start in range(0, len(blocks), CHUNK // width):
        some = slice(start, start + CHUNK // width)
        out[some] = numbers(blocks[some])
    return out.view(shape)


def _f32(blocks: Tensor) -> Tensor:
    import torch

    return blocks.view(torch.float32)


def _f16(blocks: Tensor) -> Tensor:
    import torch

    return blocks.view(torch.float16).float()


def _bf16(blocks: Tensor) -> Tensor:
    import torch

    return blocks.view(torch.bfloat16).float()


def _q4_0(blocks: Tensor) -> Tensor:
    return _nibbles(blocks[:, 2:]).sub_(8).mul_(_half(blocks, 0))


def _q4_1(blocks: Tensor) -> Tensor:
    return _nibbles(blocks[:, 4:]).mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q5_0(blocks: Tensor) -> Tensor:
    q = _nibbles(blocks[:, 6:]).add_(_bits(blocks[:, 2:6]), alpha=16)
    return q.sub_(16).mul_(_half(blocks, 0))


def _q5_1(blocks: Tensor) -> Tensor:
    q = _nibbles(blocks[:, 8:]).add_(_bits(blocks[:, 4:8]), alpha=16)
    return q.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q8_0(blocks: Tensor) -> Tensor:
    return _signed(blocks[:, 2:]).mul_(_half(blocks, 0))


def _iq4_nl(blocks: Tensor) -> Tensor:
    import torch

    # Sixteen levels, denser around zero.
    levels = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
    return torch.tensor(levels).float()[_nibbles(blocks[:, 2:], torch.int32)].mul_(_half(blocks, 0))


def _q2_k(blocks: Tensor) -> Tensor:
    scales, low = blocks[:, :16], _pairs(blocks[:, 16:80])  # low (N, 8, 32): two bits each
    d, m = _half(blocks, 80) * (scales & 15), _half(blocks, 82) * (scales >> 4)  # (N, 16)
    return _groups(low, 16).mul_(d[..., None]).sub_(m[..., None]).flatten(1)


def _q3_k(blocks: Tensor) -> Tensor:
    high, low, packed = blocks[:, None, :32], _pairs(blocks[:, 32:96]), blocks[:, 96:108]
    unset = ~(high >> _shifts(8)) & 1  # (N, 8, 32): bit g of each byte belongs to group g; unset means - 4
    fours = (packed[:, None, 8:] >> _shifts(4, 2)) & 3  # (N, 4, 4): the upper two bits of the sixteen scales
    scales = _nibbles(packed[:, :8]).add_(fours.flatten(1), alpha=16).sub_(32)  # (N, 16)
    d = _half(blocks, 108) * scales
    return _groups(low, 16).sub_(_groups(unset, 16), alpha=4).mul_(d[..., None]).flatten(1)


def _q4_k(blocks: Tensor) -> Tensor:
    d, m = _six_bit_scales(blocks)
    return _groups(_nibbles(blocks[:, 16:].unflatten(1, (4, 32))), 32).mul_(d).sub_(m).flatten(1)


def _q5_k(blocks: Tensor) -> Tensor:
    d, m = _six_bit_scales(blocks)
    high = (blocks[:, None, 16:48] >> _shifts(8)) & 1  # (N, 8, 32): bit g of each byte belongs to group g
    low = _groups(_nibbles(blocks[:, 48:].unflatten(1, (4, 32))), 32)
    return low.add_(high, alpha=16).mul_(d).sub_(m).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    low = _nibbles(blocks[:, :128].unflatten(1, (2, 64)))  # (N, 2, 128)
    high = _pairs(blocks[:, 128:192])  # (N, 8, 32)
    d = _half(blocks, 208) * _signed(blocks[:, 192:208])
    return _groups(low, 16).add_(_groups(high, 16), alpha=16).sub_(32).mul_(d[..., None]).flatten(1)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The fp16 number at that byte of each block: (N, 1)"""
    import torch

    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _signed(x: Tensor) -> Tensor:
    import torch

    return x.view(torch.int8).float()


def _shifts(count: int, step: int = 1) -> Tensor:
    """0, step, 2 step ... as a column to shift bytes by: (count, 1)"""
    import torch

    return torch.arange(0, count * step, step, dtype=torch.uint8)[:, None]


def _nibbles(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Half bytes: all lower halves of the last dimension, then all upper ones. (..., n) -> (..., 2n)"""
    import torch

    n = x.shape[-1]
    out = torch.empty(*x.shape[:-1], 2 * n, dtype=dtype or torch.float32)
    out[..., :n] = x & 15
    out[..., n:] = x >> 4
    return out


def _pairs(x: Tensor) -> Tensor:
    """Quarter bytes of two halves of 32 bytes, lowest first: (N, 64) -> (N, 8, 32)"""
    return ((x.unflatten(1, (2, 1, 32)) >> _shifts(4, 2)) & 3).flatten(1, 2)


def _bits(x: Tensor) -> Tensor:
    """Bits, lowest first: (N, 4) -> (N, 32)"""
    return ((x[..., None] >> _shifts(8)[:, 0]) & 1).flatten(1)


def _groups(x: Tensor, width: int) -> Tensor:
    """Each block's 256 numbers by the groups that share a scale: (N, 256 / width, width) in fp32"""
    return x.float().reshape(len(x), -1, width)


def _six_bit_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """d and m of the eight groups of Q4_K and Q5_K, twice (N, 8, 1): twelve bytes hold sixteen numbers, four
    lower ones each in 6 bits, the upper ones in 4 bits and 2 left over from the lower."""
    import torch

    a, b, c = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    d = torch.cat((a & 63, (c & 15) | ((a >> 6) << 4)), dim=1)
    m = torch.cat((b & 63, (c >> 4) | ((b >> 6) << 4)), dim=1)
    return (_half(blocks, 0) * d)[..., None], (_half(blocks, 2) * m)[..., None]


FORMATS: dict[str, Format] = {
    "F32": Format(1, 4, _f32),
    "F16": Format(1, 2, _f16),
    "BF16": Format(1, 2, _bf16),
    "Q4_0": Format(32, 18, _q4_0),
    "Q4_1": Format(32, 20, _q4_1),
    "Q5_0": Format(32, 22, _q5_0),
    "Q5_1": Format(32, 24, _q5_1),
    "Q8_0": Format(32, 34, _q8_0),
    "Q2_K": Format(256, 84, _q2_k),
    "Q3_K": Format(256, 110, _q3_k),
    "Q4_K": Format(256, 144, _q4_k),
    "Q5_K": Format(256, 176, _q5_k),
    "Q6_K": Format(256, 210, _q6_k),
    "IQ4_NL": Format(32, 18, _iq4_nl),
}
