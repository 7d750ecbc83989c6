"""A file's own codes: kept, they are the same numbers."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.weights.gguf.models import llama_metadata, llama_tensors
from tests.weights.gguf.writer import Raw, write_gguf
from transformer.int8 import Int8Linear
from weights.checkpoint import load_model
from weights.load import load, open_weights

Q4_0, Q4_1, Q8_0 = 2, 3, 8
SIZES = {Q4_0: 18, Q4_1: 20, Q8_0: 34}


def blocks(kind: int, shape: tuple[int, ...], seed: int) -> Raw:
    """Random codes with small scales."""
    count = shape[0] * shape[1] // 32
    data = torch.randint(0, 256, (count, SIZES[kind]), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    for at in (0, 2) if kind == Q4_1 else (0,):
        data[:, at + 1] = data[:, at + 1] & 0x83 | 0x20
    return Raw(kind, shape[::-1], bytes(data.flatten().tolist()))


def write(path: Path, kinds: dict[str, int]) -> Path:
    """A llama whose tensors of these names are codes, the others numbers."""
    tensors: dict[str, Tensor | Raw] = {}
    for number, (name, tensor) in enumerate(llama_tensors().items()):
        kind = next((kind for part, kind in kinds.items() if part in name and tensor.ndim == 2), None)
        tensors[name] = tensor if kind is None else blocks(kind, tuple(tensor.shape), number)
    return write_gguf(path, llama_metadata(), tensors)


ALL = {"qkv", "out", "gate_up", "down", "head"}


@pytest.mark.parametrize(
    ("kinds", "coded"),
    [
        ({"": Q8_0}, ALL),
        ({"": Q4_1}, ALL),
        ({"attn_v": Q4_1, "ffn_up": Q8_0, "": Q4_0}, ALL),  # some with offsets, some without
        ({"attn": Q4_0}, {"qkv", "out"}),
        ({"attn_q": Q4_0}, set()),  # one product with k and v, which are numbers
        ({}, set()),
    ],
)
def test_kept_codes_are_the_same_model(
    tmp_path: Path, library: ctypes.CDLL, kinds: dict[str, int], coded: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "model.gguf", kinds)
    plain = load_model(open_weights(path), torch.float32)
    kept = load_model(open_weights(path), torch.float32, keep_codes=True)
    found = {name: module for name, module in kept.named_modules() if isinstance(module, Int8Linear)}
    assert {name.rpartition(".")[2] for name in found} == coded
    modules = dict(plain.named_modules())
    for name, module in found.items():
        assert torch.equal(module.weight, modules[name].weight)
    assert torch.equal(kept.embed.weight, plain.embed.weight)
    ids = torch.arange(8)[None]
    expected = plain(ids)
    torch.testing.assert_close(kept(ids), expected, rtol=0, atol=1e-5 * max(10.0, float(expected.abs().max())))

    monkeypatch.setattr("weights.load.find_native", lambda: library)
    loaded = load(str(path))
    assert loaded.precision == ("the file's own codes, " if coded else "") + "float32, compiled kernels"
    torch.testing.assert_close(loaded.model(ids), expected, rtol=0, atol=1e-5 * max(10.0, float(expected.abs().max())))
