"""Every format against its definition, written out number by number."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
import torch

from weights.gguf.blocks import FORMATS, as_codes, dequantize


def half(block: bytes, at: int) -> float:
    return struct.unpack_from("<e", block, at)[0]


def nibble(data: bytes, i: int, n: int) -> int:
    """Number i of 2n half bytes: lower halves first."""
    return data[i] & 15 if i < n else data[i - n] >> 4


def bit(data: bytes, i: int) -> int:
    return data[i // 8] >> (i % 8) & 1


def q4_0(b: bytes, i: int) -> float:
    return (nibble(b[2:], i, 16) - 8) * half(b, 0)


def q4_1(b: bytes, i: int) -> float:
    return nibble(b[4:], i, 16) * half(b, 0) + half(b, 2)


def q5_0(b: bytes, i: int) -> float:
    return ((nibble(b[6:], i, 16) | bit(b[2:6], i) << 4) - 16) * half(b, 0)


def q5_1(b: bytes, i: int) -> float:
    return (nibble(b[8:], i, 16) | bit(b[4:8], i) << 4) * half(b, 0) + half(b, 2)


def q8_0(b: bytes, i: int) -> float:
    return struct.unpack_from("b", b, 2 + i)[0] * half(b, 0)


def iq4_nl(b: bytes, i: int) -> float:
    levels = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
    return levels[nibble(b[2:], i, 16)] * half(b, 0)


def crumb(data: bytes, i: int) -> int:
    """Two bits: 128 numbers lie in 32 bytes, the first 32 in their lowest bits."""
    return data[i // 128 * 32 + i % 32] >> (i % 128 // 32 * 2) & 3


def q2_k(b: bytes, i: int) -> float:
    scale = b[i // 16]
    return half(b, 80) * (scale & 15) * crumb(b[16:80], i) - half(b, 82) * (scale >> 4)


def q3_k(b: bytes, i: int) -> float:
    k = i // 16
    low = b[96 + k] & 15 if k < 8 else b[96 + k - 8] >> 4
    high = b[104 + k % 4] >> (2 * (k // 4)) & 3
    quant = crumb(b[32:96], i) - (0 if b[i % 32] >> (i // 32) & 1 else 4)
    return half(b, 108) * ((low | high << 4) - 32) * quant


def scale_and_minimum(s: bytes, j: int) -> tuple[int, int]:
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4


def q4_k(b: bytes, i: int) -> float:
    scale, minimum = scale_and_minimum(b[4:16], i // 32)
    quant = nibble(b[16 + i // 64 * 32 :], i % 64, 32)
    return half(b, 0) * scale * quant - half(b, 2) * minimum


def q5_k(b: bytes, i: int) -> float:
    scale, minimum = scale_and_minimum(b[4:16], i // 32)
    quant = nibble(b[48 + i // 64 * 32 :], i % 64, 32) | (b[16 + i % 32] >> (i // 32) & 1) << 4
    return half(b, 0) * scale * quant - half(b, 2) * minimum


def q6_k(b: bytes, i: int) -> float:
    low = nibble(b[i // 128 * 64 :], i % 128, 64)
    high = crumb(b[128:192], i)
    return half(b, 208) * struct.unpack_from("b", b, 192 + i // 16)[0] * ((low | high << 4) - 32)


REFERENCE: dict[str, Callable[[bytes, int], float]] = {
    "F32": lambda b, i: struct.unpack("<f", b)[0],
    "F16": lambda b, i: half(b, 0),
    "BF16": lambda b, i: struct.unpack("<f", b"\0\0" + b)[0],
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ4_NL": iq4_nl,
}


def test_the_reference_knows_every_format() -> None:
    assert REFERENCE.keys() == FORMATS.keys()


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_those_of_the_definition(name: str) -> None:
    width, size, grouping, _ = FORMATS[name]
    count = 24
    data = torch.randint(0, 256, (count, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    if name in ("F32", "F16", "BF16"):
        data[:, -1] &= 0xBF  # finite numbers only
    else:
        for at in (80, 82, 108, 208, 0, 2):  # wherever a scale may lie: small and finite
            if at + 1 < size:
                data[:, at + 1] = data[:, at + 1] & 0x83 | 0x20
    blocks = [bytes(block) for block in data.tolist()]
    expected = torch.tensor([[REFERENCE[name](b, i) for i in range(width)] for b in blocks], dtype=torch.float64)
    found = dequantize(name, data.flatten(), (4, count // 4 * width))
    assert found.dtype == torch.float32
    scale = max(float(expected.abs().max()), 1.0)
    torch.testing.assert_close(found.double().view(count, width), expected, rtol=3e-7, atol=1e-6 * scale)
    if grouping is not None:
        codes = as_codes(name, data.flatten(), (4, count // 4 * width))
        assert torch.equal(codes.numbers(), found)
        assert codes.scales.shape[1] == found.shape[1] // grouping.group
        assert (codes.offsets is not None) == grouping.offset


def test_many_blocks_are_made_chunk_by_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    data = torch.randint(0, 100, (10, 34), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    whole = dequantize("Q8_0", data.flatten(), (10, 32))
    monkeypatch.setattr("weights.gguf.blocks.CHUNK", 96)
    assert torch.equal(dequantize("Q8_0", data.flatten(), (10, 32)), whole)
