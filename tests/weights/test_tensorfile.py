"""Safetensors headers, sound and broken. Whatever is wrong, only an InputError may come out."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from transformer.errors import InputError
from weights.tensorfile import TensorFile, read_header

TENSORS = {
    "a.weight": torch.arange(6, dtype=torch.float32).view(2, 3),
    "b": torch.arange(4, dtype=torch.bfloat16),
    "c.bias": torch.tensor([1.5], dtype=torch.float64),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path / "model.safetensors"


def write(path: Path, header: Any, data: bytes = bytes(32)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str = "F32", shape: Any = (8,), offsets: Any = (0, 32)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_reads_what_safetensors_wrote(file: Path) -> None:
    entries = read_header(file)
    assert {name: (e.dtype, e.shape) for name, e in entries.items()} == {
        "a.weight": ("F32", (2, 3)),
        "b": ("BF16", (4,)),
        "c.bias": ("F64", (1,)),
    }
    opened = TensorFile(file, entries)
    for name, tensor in TENSORS.items():
        assert torch.equal(opened.tensor(name), tensor)


def test_tensors_are_views_of_the_file_and_survive_being_forgotten(tmp_path: Path) -> None:
    numbers = torch.arange(50_000, dtype=torch.float32)
    save_file({"x": numbers}, tmp_path / "model.safetensors")
    opened = TensorFile(tmp_path / "model.safetensors", read_header(tmp_path / "model.safetensors"))
    tensor = opened.tensor("x")
    tensor[0] = 7.0
    assert opened.tensor("x")[0] == 7.0  # one memory
    assert read_header(tmp_path / "model.safetensors")["x"].shape == (50_000,)
    opened.forget("x", 0.5)
    opened.forget("x")
    assert torch.equal(tensor[1:], numbers[1:])


def test_only_floats_are_weights(tmp_path: Path) -> None:
    save_file({"x": torch.arange(3)}, tmp_path / "f.safetensors")
    opened = TensorFile(tmp_path / "f.safetensors", read_header(tmp_path / "f.safetensors"))
    with pytest.raises(InputError, match=r"tensor x is I64, weights must be F64, F32, F16, BF16"):
        opened.tensor("x")


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ({"x": entry(offsets=(0, 28))}, "shape [8] needs 32 bytes, has 28"),
        ({"x": entry(shape=(9,))}, "shape [9] needs 36 bytes, has 32"),
        ({"x": entry(shape=(4,), offsets=(0, 16))}, "tensors end at byte"),
        ({"x": entry(shape=(4,), offsets=(16, 32))}, "tensor x starts at byte"),
        ({"x": entry(), "y": entry()}, "tensor y starts at byte"),
        ({"x": entry(shape=(5,), offsets=(0, 20)), "y": entry(shape=(4,), offsets=(16, 32))}, "x ends at"),
        ({"x": entry(shape=(3,), offsets=(0, 12)), "y": entry(shape=(4,), offsets=(16, 32))}, "x ends at"),
        ({"x": entry(offsets=(0, 64), shape=(16,))}, "tensors end at byte"),
        ({"x": entry(offsets=(-32, 0))}, "impossible shape or offsets"),
        ({"x": entry(offsets=(32, 0))}, "impossible shape or offsets"),
        ({"x": entry(offsets=(0, 32.0))}, "impossible shape or offsets"),
        ({"x": entry(offsets=(False, 32))}, "impossible shape or offsets"),
        ({"x": entry(offsets=(0, 2**70), shape=(2**68,))}, "impossible shape or offsets"),
        ({"x": entry(shape=(-8,))}, "impossible shape or offsets"),
        ({"x": entry(shape=(1,) * 9)}, "impossible shape or offsets"),
        ({"x": entry(shape=("8",))}, "impossible shape or offsets"),
        ({"x": entry(shape=8)}, "lacks dtype, shape or two offsets"),
        ({"x": entry(offsets=(0, 16, 32))}, "lacks dtype, shape or two offsets"),
        ({"x": {"dtype": "F32"}}, "lacks dtype, shape or two offsets"),
        ({"x": [1, 2]}, "lacks dtype, shape or two offsets"),
        ({"x": entry(dtype="F8_E4M3")}, "dtype 'F8_E4M3', not one of"),
        ({"x": entry(dtype=["F32"])}, "not one of"),
        ({"\x1b[31m": entry()}, "is not a plain name"),
        ({"x" * 300: entry()}, "is not a plain name"),
        ([], "expected a JSON object, found list"),
        (b"{", "not valid JSON"),
        (b"\xff{}", "not UTF-8 at byte 0"),
        (b'{"x": NaN}', "NaN is not a JSON number"),
        (b'{"x": 1e999}', "out of range"),
        (b'{"x": 1, "x": 2}', "the key 'x' stands twice"),
        (b'{"x":' + b"[" * 100_000, "JSON nested too deeply"),
        (b'{"x":' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_broken_headers_are_refused(tmp_path: Path, header: Any, complaint: str) -> None:
    file = write(tmp_path / "model.safetensors", header)
    with pytest.raises(InputError) as raised:
        read_header(file)
    message = str(raised.value)
    assert message.startswith(str(file)) and complaint in message and "\n" not in message


def test_a_length_beyond_the_file_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(InputError, match=f"header claims {2**63} bytes, the file has 10"):
        read_header(file)


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="not a regular file"):
            read_header(path)
    with pytest.raises(InputError, match="no such file"):
        read_header(tmp_path / "absent")


def test_every_truncation_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(InputError):
            read_header(file)
    file.write_bytes(whole + b"\0")
    with pytest.raises(InputError, match=f"tensors end at byte {len(whole)}, the file has {len(whole) + 1}"):
        read_header(file)


NASTY = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**300, 0.5, 1e308, "", "F32", "x", "\0", "../x", [], [0], [0, 1],
    [None], [[]], {}, {"dtype": "F32"}, [2**62, 2**62], [0] * 20,
)  # fmt: skip


def mutant(draw: random.Random, value: Any) -> Any:
    """The value with something in it replaced, removed, repeated or added."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        match draw.randrange(8):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {**value, draw.choice(("new", "__metadata__", "\n", key + "x")): draw.choice(NASTY)}
            case _:
                return {**value, key: mutant(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.7:
        i = draw.randrange(len(value))
        return draw.choice(([*value[:i], mutant(draw, value[i]), *value[i + 1 :]], value[:i], value + value))
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.5:
        return value + draw.choice((-8, -1, 1, 4, 8, 2**32))
    return draw.choice(NASTY)


def test_thousands_of_mutants_raise_nothing_but_input_errors(file: Path) -> None:
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    draw = random.Random(0)
    refused = 0
    for i in range(3000):
        if i % 3:
            changed = mutant(draw, header)
            write(file, mutant(draw, changed) if i % 3 == 2 else changed, data)
        else:
            noise = bytearray(whole)
            for _ in range(draw.randint(1, 4)):
                noise[draw.randrange(8 + length)] = draw.randrange(256)
            file.write_bytes(noise)
        try:
            entries = read_header(file)
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
        else:
            opened = TensorFile(file, entries)
            for name, item in entries.items():
                if item.dtype in ("F32", "F64", "F16", "BF16"):
                    assert tuple(opened.tensor(name).shape) == item.shape
    assert refused > 2000
