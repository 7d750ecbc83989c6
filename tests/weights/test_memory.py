"""Where weights live."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

from tests.tiny import tiny_config, write_tiny
from transformer.config import Config
from transformer.int8 import Int8Linear, quantize_rows
from weights.checkpoint import load_model, open_checkpoint
from weights.load import load
from weights.memory import Room, one_thread


def test_tensors_lie_side_by_side_and_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weights.memory.SLAB", 4096)
    room = Room("cpu")
    shapes: list[tuple[tuple[int, ...], torch.dtype]] = [
        ((3, 5), torch.float32),
        ((7,), torch.int8),
        ((0, 4), torch.float32),
        ((2000,), torch.float64),
        ((9,), torch.float16),
    ]
    tensors = [room.empty(shape, dtype) for shape, dtype in shapes]
    for number, (tensor, (shape, dtype)) in enumerate(zip(tensors, shapes, strict=True)):
        assert tensor.shape == shape and tensor.dtype == dtype
        assert tensor.data_ptr() % 64 == 0 or tensor.numel() == 0
        tensor.fill_(number)
    assert all(bool((tensor == number).all()) for number, tensor in enumerate(tensors))


def test_a_system_without_huge_pages_has_room_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert Room("cpu").empty((2, 3), torch.float32).shape == (2, 3)


def test_one_thread_gives_the_others_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError), one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("config", [tiny_config(), tiny_config(tied=True), tiny_config(qkv_bias=True, gated=False)])
def test_loading_in_eight_bits_is_loading_and_rounding(tmp_path: Path, config: Config) -> None:
    path = write_tiny(tmp_path / "model", config)
    plain = load_model(open_checkpoint(path), torch.float32)
    eight = load_model(open_checkpoint(path), torch.float32, quantize=True)
    modules = dict(plain.named_modules())
    found = {name: module for name, module in eight.named_modules() if isinstance(module, Int8Linear)}
    assert len(found) == 4 * len(config.layers) + 1
    for name, module in found.items():
        codes, scales, _ = quantize_rows(modules[name].weight)
        assert torch.equal(module.matrix.codes, codes) and torch.equal(module.matrix.scales, scales)
        assert module.bias is None or torch.equal(module.bias, modules[name].bias)
    assert torch.equal(eight.embed.weight, plain.embed.weight)


def test_a_model_says_what_it_computes_with(tiny: Path) -> None:
    assert load(str(tiny)).precision == "float32"
    assert load(str(tiny), quantize=True).precision == "int8 weights, float32"
    assert load(str(tiny), dtype="bf16").precision == "bfloat16"


def test_kernels_that_were_built_are_used(tiny: Path, library: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weights.load.find_native", lambda: library)
    loaded = load(str(tiny))
    assert loaded.precision == "float32, compiled kernels"
    assert loaded.model.head.native is not None
