"""The block formats of ggml: how many numbers a block holds, in how many bytes, and what they are.

In every format a number is code × scale, or code × scale + offset, where some neighbours share scale and offset, and
the code is a whole number of eight bits or fewer. A format's function takes blocks (N, bytes) of uint8 and gives these
three, all blocks at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from weights.tensorfile import Grouping

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.int8 import Codes

CHUNK = 1 << 19  # numbers made at once: few enough that what lies between stays in the processor's cache


class Format(NamedTuple):
    width: int  # numbers a block
    size: int  # bytes a block
    grouping: Grouping | None = None  # None where numbers stand as they are
    parts: Callable[[Tensor], Parts] | None = None


class Parts(NamedTuple):
    """Of N blocks of G groups of W numbers."""

    codes: Tensor  # (N, G·W) int8
    scales: Tensor  # (N, G)
    offsets: Tensor | None = None  # (N, G)


def dequantize(name: str, data: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The numbers of all blocks in data (bytes,), a tensor's rows one after the other, in fp32."""
    import torch

    form = FORMATS[name]
    if form.grouping is None or form.parts is None:
        floats = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
        return data.view(floats[name]).float().view(shape)
    blocks = data.view(-1, form.size)
    out = torch.empty(len(blocks), form.width)
    for start in range(0, len(blocks), CHUNK // form.width):
        some = slice(start, start + CHUNK // form.width)
        codes, scales, offsets = form.parts(blocks[some])
        numbers = codes.float().unflatten(1, (-1, form.grouping.group)).mul_(scales[..., None])
        out[some] = (numbers if offsets is None else numbers.add_(offsets[..., None])).flatten(1)
    return out.view(shape)


def as_codes(name: str, data: Tensor, shape: tuple[int, ...]) -> Codes:
    """The same, not yet multiplied."""
    import torch

    from transformer.int8 import Codes

    form = FORMATS[name]
    assert form.parts is not None
    blocks = data.view(-1, form.size)
    out = torch.empty(len(blocks), form.width, dtype=torch.int8)
    scales, offsets = [], []
    for start in range(0, len(blocks), CHUNK // form.width):
        some = slice(start, start + CHUNK // form.width)
        parts = form.parts(blocks[some])
        out[some] = parts.codes
        scales.append(parts.scales)
        offsets += [] if parts.offsets is None else [parts.offsets]
    rows = (shape[0], -1)
    return Codes(out.view(shape), torch.cat(scales).view(rows), torch.cat(offsets).view(rows) if offsets else None)


def _q4_0(blocks: Tensor) -> Parts:
    return Parts(_nibbles(blocks[:, 2:]).sub_(8), _half(blocks, 0))


def _q4_1(blocks: Tensor) -> Parts:
    return Parts(_nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2))


def _q5_0(blocks: Tensor) -> Parts:
    return Parts(_nibbles(blocks[:, 6:]).add_(_bits(blocks[:, 2:6]), alpha=16).sub_(16), _half(blocks, 0))


def _q5_1(blocks: Tensor) -> Parts:
    codes = _nibbles(blocks[:, 8:]).add_(_bits(blocks[:, 4:8]), alpha=16)
    return Parts(codes, _half(blocks, 0), _half(blocks, 2))


def _q8_0(blocks: Tensor) -> Parts:
    return Parts(_signed(blocks[:, 2:]), _half(blocks, 0))


def _iq4_nl(blocks: Tensor) -> Parts:
    import torch

    # Sixteen levels, denser around zero.
    levels = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
    return Parts(torch.tensor(levels, dtype=torch.int8)[_nibbles(blocks[:, 2:]).int()], _half(blocks, 0))


def _q2_k(blocks: Tensor) -> Parts:
    scales, low = blocks[:, :16], _pairs(blocks[:, 16:80])  # low (N, 8, 32): two bits each
    return Parts(_flat(low), _half(blocks, 80) * (scales & 15), _half(blocks, 82) * -(scales >> 4).float())


def _q3_k(blocks: Tensor) -> Parts:
    high, low, packed = blocks[:, None, :32], _pairs(blocks[:, 32:96]), blocks[:, 96:108]
    unset = ~(high >> _shifts(8)) & 1  # (N, 8, 32): bit g of each byte belongs to group g; unset means - 4
    fours = (packed[:, None, 8:] >> _shifts(4, 2)) & 3  # (N, 4, 4): the upper two bits of the sixteen scales
    scales = _nibbles(packed[:, :8]).add_(fours.flatten(1), alpha=16).sub_(32)  # (N, 16)
    return Parts(_flat(low).sub_(_flat(unset), alpha=4), _half(blocks, 108) * scales)


def _q4_k(blocks: Tensor) -> Parts:
    return Parts(_flat(_nibbles(blocks[:, 16:].unflatten(1, (4, 32)))), *_six_bit_scales(blocks))


def _q5_k(blocks: Tensor) -> Parts:
    high = (blocks[:, None, 16:48] >> _shifts(8)) & 1  # (N, 8, 32): bit g of each byte belongs to group g
    low = _flat(_nibbles(blocks[:, 48:].unflatten(1, (4, 32))))
    return Parts(low.add_(_flat(high), alpha=16), *_six_bit_scales(blocks))


def _q6_k(blocks: Tensor) -> Parts:
    low = _nibbles(blocks[:, :128].unflatten(1, (2, 64)))  # (N, 2, 128)
    high = _pairs(blocks[:, 128:192])  # (N, 8, 32)
    scales = _half(blocks, 208) * _signed(blocks[:, 192:208])
    return Parts(_flat(low).add_(_flat(high), alpha=16).sub_(32), scales)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The fp16 number at that byte of each block: (N, 1)"""
    import torch

    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _signed(x: Tensor) -> Tensor:
    import torch

    return x.view(torch.int8)


def _shifts(count: int, step: int = 1) -> Tensor:
    """0, step, 2 step ... as a column to shift bytes by: (count, 1)"""
    import torch

    return torch.arange(0, count * step, step, dtype=torch.uint8)[:, None]


def _nibbles(x: Tensor) -> Tensor:
    """Half bytes: all lower halves of the last dimension, then all upper ones. (..., n) -> (..., 2n)"""
    import torch

    n = x.shape[-1]
    out = torch.empty(*x.shape[:-1], 2 * n, dtype=torch.uint8)
    torch.bitwise_and(x, 15, out=out[..., :n])
    torch.bitwise_right_shift(x, 4, out=out[..., n:])
    return out.view(torch.int8)


def _pairs(x: Tensor) -> Tensor:
    """Quarter bytes of two halves of 32 bytes, lowest first: (N, 64) -> (N, 8, 32)"""
    return ((x.unflatten(1, (2, 1, 32)) >> _shifts(4, 2)) & 3).flatten(1, 2)


def _bits(x: Tensor) -> Tensor:
    """Bits, lowest first: (N, 4) -> (N, 32)"""
    return ((x[..., None] >> _shifts(8)[:, 0]) & 1).flatten(1)


def _flat(x: Tensor) -> Tensor:
    """Each block's numbers in their order: (N, 256)"""
    import torch

    return x.flatten(1).view(torch.int8)


def _six_bit_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and offsets of the eight groups of Q4_K and Q5_K, twice (N, 8): twelve bytes hold sixteen numbers, four
    lower ones each in 6 bits, the upper ones in 4 bits and 2 left over from the lower."""
    import torch

    a, b, c = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    d = torch.cat((a & 63, (c & 15) | ((a >> 6) << 4)), dim=1)
    m = torch.cat((b & 63, (c >> 4) | ((b >> 6) << 4)), dim=1)
    return _half(blocks, 0) * d, _half(blocks, 2) * -m.float()


FORMATS: dict[str, Format] = {
    "F32": Format(1, 4),
    "F16": Format(1, 2),
    "BF16": Format(1, 2),
    "Q4_0": Format(32, 18, Grouping(32, False), _q4_0),
    "Q4_1": Format(32, 20, Grouping(32, True), _q4_1),
    "Q5_0": Format(32, 22, Grouping(32, False), _q5_0),
    "Q5_1": Format(32, 24, Grouping(32, True), _q5_1),
    "Q8_0": Format(32, 34, Grouping(32, False), _q8_0),
    "Q2_K": Format(256, 84, Grouping(16, True), _q2_k),
    "Q3_K": Format(256, 110, Grouping(16, False), _q3_k),
    "Q4_K": Format(256, 144, Grouping(32, True), _q4_k),
    "Q5_K": Format(256, 176, Grouping(32, True), _q5_k),
    "Q6_K": Format(256, 210, Grouping(16, False), _q6_k),
    "IQ4_NL": Format(32, 18, Grouping(32, False), _iq4_nl),
}
