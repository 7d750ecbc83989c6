"""Reading within bounds: right files read right, wrong ones named in one line, nothing allocated on their word."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch

from tests.weights.gguf.models import llama_metadata, llama_tensors
from tests.weights.gguf.writer import (
    ARRAY,
    BOOL,
    STRING,
    UINT32,
    Raw,
    gguf_bytes,
    key_value,
    tensor_info,
    text,
    write_gguf,
)
from transformer.errors import InputError
from weights.gguf.checkpoint import beside_gguf, open_gguf
from weights.gguf.file import GgufFile, read_gguf
from weights.load import load_tokenizer

HUGE = (2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)


def head(tensors: int = 0, values: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values)


def value(key: str, kind: int, data: bytes) -> bytes:
    return head(values=1) + text(key) + struct.pack("<I", kind) + data


def tensors(*infos: bytes, data: bytes = bytes(64), metadata: bytes = b"", values: int = 0) -> bytes:
    front = head(len(infos), values) + metadata + b"".join(infos)
    return front + bytes(-len(front) % 32) + data


def test_values_and_tensors_come_back(tmp_path: Path) -> None:
    metadata = {"a.number": 7, "a.flag": True, "a.float": 0.5, "a.text": "ünï", "a.list": [1, -2], "a.words": ["x", ""]}
    matrix, vector = torch.arange(6.0).view(2, 3), torch.ones(5)
    gguf = read_gguf(write_gguf(tmp_path / "x.gguf", metadata, {"matrix": matrix, "vector": vector}))
    assert gguf.metadata == metadata
    file = GgufFile(gguf.path, gguf.entries)
    assert torch.equal(file.tensor("matrix"), matrix) and torch.equal(file.tensor("vector"), vector)


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_a_file_may_choose_its_alignment(tmp_path: Path, alignment: int) -> None:
    path = write_gguf(tmp_path / "x.gguf", {"general.alignment": alignment}, {"a": torch.ones(3), "b": torch.ones(4)})
    gguf = read_gguf(path)
    assert [entry.start % alignment for entry in gguf.entries.values()] == [0, 0]
    assert torch.equal(GgufFile(path, gguf.entries).tensor("b"), torch.ones(4))


def test_bytes_behind_the_last_tensor_are_let_be(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes({}, {"a": torch.ones(3)}) + b"rest")
    assert list(read_gguf(path).entries) == ["a"]


ONE = tensor_info("a", (4,), 0, 0)
WRONG = {
    "empty": (b"", "0 bytes"),
    "magic": (b"GGML" + head()[4:], "does not begin with 'GGUF'"),
    "magic cut": (b"GG", "2 bytes are left"),
    "version 0": (head(version=0), "version 0"),
    "version 1": (head(version=1), "version 1"),
    "version to come": (head(version=4), "version 4"),
    "version of another byte order": (head(version=3 << 24), "version 50331648"),
    **{f"{n} tensors": (head(tensors=n), f"{n} tensors claimed") for n in HUGE},
    **{f"{n} values": (head(values=n), f"{n} values claimed") for n in HUGE},
    **{f"key of {n}": (head(values=1) + struct.pack("<Q", n) + bytes(32), f"{n} bytes of a key") for n in HUGE},
    **{
        f"string of {n}": (value("k", STRING, struct.pack("<Q", n) + bytes(32)), f"{n} bytes of k claimed")
        for n in HUGE
    },
    **{
        f"array of {n}": (value("k", ARRAY, struct.pack("<IQ", UINT32, n) + bytes(32)), f"{n} elements of k claimed")
        for n in HUGE
    },
    **{
        f"array of {n} strings": (value("k", ARRAY, struct.pack("<IQ", STRING, n) + bytes(32)), f"{n} strings of k")
        for n in HUGE
    },
    "last string of an array cut": (
        value("k", ARRAY, struct.pack("<IQ", STRING, 2) + text("x" * 10) + bytes(4)),
        "8 bytes of k claimed",
    ),
    "string in an array too long": (
        value("k", ARRAY, struct.pack("<IQ", STRING, 2) + text("x") + struct.pack("<Q", 9) + bytes(4)),
        "9 bytes of k claimed",
    ),
    "array of arrays": (value("k", ARRAY, struct.pack("<IQ", ARRAY, 1) + bytes(32)), "array of the type 9"),
    "array of an unknown type": (value("k", ARRAY, struct.pack("<IQ", 99, 1) + bytes(32)), "array of the type 99"),
    "value of an unknown type": (value("k", 13, bytes(32)), "unknown type 13"),
    "empty key": (value("", UINT32, bytes(4)), "0 characters"),
    "long key": (value("k" * 70_000, UINT32, bytes(4)), "70000 characters"),
    "key twice": (head(values=2) + 2 * key_value("k", 1), "stands twice"),
    "key not UTF-8": (head(values=1) + text(b"\xff") + struct.pack("<I", BOOL) + b"\0", "not UTF-8"),
    "string not UTF-8": (value("k", STRING, text(b"\xc3")), "not UTF-8"),
    "strings not UTF-8": (value("k", ARRAY, struct.pack("<IQ", STRING, 1) + text(b"\xed\xa0\x80")), "not UTF-8"),
    "alignment 0": (head(values=1) + key_value("general.alignment", 0), "power of two"),
    "alignment 24": (head(values=1) + key_value("general.alignment", 24), "power of two"),
    "alignment 2 GiB": (head(values=1) + key_value("general.alignment", 2**31), "power of two"),
    "alignment a string": (head(values=1) + key_value("general.alignment", "32"), "power of two"),
    "alignment a flag": (head(values=1) + key_value("general.alignment", True), "power of two"),
    "alignment another than used": (
        tensors(ONE, tensor_info("b", (4,), 0, 32), metadata=key_value("general.alignment", 64), values=1),
        "starts at byte",
    ),
    "no tensor name": (tensors(tensor_info("", (4,), 0, 0)), "0 characters"),
    "long tensor name": (tensors(tensor_info("a" * 257, (4,), 0, 0)), "257 characters"),
    "strange tensor name": (tensors(tensor_info("a\x1b[31m", (4,), 0, 0)), "not a plain name"),
    "tensor name of 2**64": (head(1) + struct.pack("<Q", 2**64 - 1) + bytes(64), "bytes of a tensor's name"),
    "tensor twice": (tensors(ONE, ONE), "stands twice"),
    "0 dimensions": (tensors(tensor_info("a", (), 0, 0)), "has 0 dimensions"),
    "5 dimensions": (tensors(tensor_info("a", (1,) * 5, 0, 0)), "has 5 dimensions"),
    "dimension 0": (tensors(tensor_info("a", (4, 0), 0, 0)), "whole blocks"),
    **{f"rows of {n}": (tensors(tensor_info("a", (n,), 0, 0)), "ends at byte") for n in HUGE},
    "numbers beyond 2**64": (tensors(tensor_info("a", (2**32, 2**33), 0, 0)), "ends at byte"),
    "bytes beyond 2**64": (tensors(tensor_info("a", (2**62,), 0, 0)), "ends at byte"),
    "blocks not whole": (tensors(tensor_info("a", (33, 2), 8, 0)), "whole blocks of 32"),
    "unknown format": (tensors(tensor_info("a", (32,), 99, 0)), "has the type 99"),
    "a format that was removed": (tensors(tensor_info("a", (32,), 4, 0)), "has the type 4"),
    "offset not aligned": (tensors(tensor_info("a", (4,), 0, 4)), "starts at byte"),
    "offset 2**64 - 1": (tensors(tensor_info("a", (4,), 0, 2**64 - 1)), "starts at byte"),
    "overlap": (tensors(ONE, tensor_info("b", (4,), 0, 0)), "starts at byte"),
    "hole": (tensors(ONE, tensor_info("b", (4,), 0, 64), data=bytes(96)), "starts at byte"),
    "data cut": (tensors(ONE, data=bytes(15)), "ends at byte"),
    "no data": (head(1) + ONE, "ends at byte"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_named_in_one_line(tmp_path: Path, case: str) -> None:
    data, complaint = WRONG[case]
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as error:
            read_gguf(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    message = str(error.value)
    assert message.startswith(f"{path}: ") and complaint in message
    assert "\n" not in message and "\x1b" not in message and len(message) < 400
    assert peak < 1_000_000


def test_what_is_no_file_is_an_input_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.gguf", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            read_gguf(path)


def small_file() -> bytes:
    """Everything a file can hold, in less than 4 kB of head."""
    metadata = llama_metadata()
    kept = 40
    for key in ("tokens", "token_type"):
        metadata[f"tokenizer.ggml.{key}"] = metadata[f"tokenizer.ggml.{key}"][:kept]
    metadata["tokenizer.ggml.merges"] = ['! "', "# $"]
    metadata["tokenizer.ggml.tokens"][30:32] = ['!"', "#$"]
    blocks = Raw(8, (32, 2), bytes(68))
    return gguf_bytes(metadata, {**llama_tensors(kept), "rope_freqs.weight": torch.ones(4), "unused": blocks})


def read_whole(path: Path) -> None:
    gguf = read_gguf(path)
    checkpoint = open_gguf(gguf)
    load_tokenizer(beside_gguf(gguf), checkpoint.config.vocab_size)


def test_the_small_file_is_right(tmp_path: Path) -> None:
    read_whole(write_small(tmp_path)[0])


def test_a_file_cut_anywhere_is_an_input_error(tmp_path: Path) -> None:
    path, first = write_small(tmp_path)
    assert first < 4096
    for length in [*range(path.stat().st_size - 96, first, -997), *range(first, -1, -1)]:
        os.truncate(path, length)
        with pytest.raises(InputError):
            read_gguf(path)


def write_small(tmp_path: Path) -> tuple[Path, int]:
    """The small file, and where its head ends."""
    path = tmp_path / "x.gguf"
    path.write_bytes(small_file())
    return path, min(entry.start for entry in read_gguf(path).entries.values())


def mutants(data: bytes, first: int, count: int, seed: int) -> list[bytes]:
    """Bytes flipped, boundary numbers written over, stretches doubled or dropped: in the head, where it hurts."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(first)
            kind = chance.randrange(4)
            if kind == 0:
                mutant[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                number = chance.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1))
                mutant[at : at + 8] = struct.pack("<Q", number)
            elif kind == 2:
                mutant[at:at] = mutant[at : at + chance.randrange(1, 40)]
            else:
                del mutant[at : at + chance.randrange(1, 40)]
        found.append(bytes(mutant))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_mutants_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    path, first = write_small(tmp_path)
    refused = 0
    for mutant in mutants(path.read_bytes(), first, 300, seed):
        path.write_bytes(mutant)
        try:
            read_whole(path)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 900, str(error)
    assert refused > 100


@pytest.mark.slow
def test_many_more_mutants_are_read_or_refused(tmp_path: Path) -> None:
    path, first = write_small(tmp_path)
    for mutant in mutants(path.read_bytes(), first, 5000, 99):
        path.write_bytes(mutant)
        try:
            read_whole(path)
        except InputError:
            continue
