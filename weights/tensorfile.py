"""Safetensors files: the header checked before anything else is read, the tensors memory-mapped.

Reading a header needs no torch, so that a model can be described without loading it.
"""

from __future__ import annotations

import math
import mmap
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer.errors import InputError
from weights.strict_json import MEGABYTE, parse_json

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.int8 import Codes

ITEM_SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1
}  # fmt: skip
FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
NAME = re.compile(r"[\w.\-/]{1,256}", re.ASCII)


class Entry(NamedTuple):
    """Where a tensor lies: bytes start to stop of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(path: Path) -> dict[str, Entry]:
    """Every tensor of the file, all lengths checked against the file's own size: no holes, no overlaps."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path}: not a regular file")
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if status.st_size < 8 or length > min(status.st_size - 8, 100 * MEGABYTE):
                raise InputError(f"{path}: header claims {length} bytes, the file has {status.st_size}")
            table = parse_json(file.read(length), str(path))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    table.pop("__metadata__", None)
    entries = {name: _entry(path, name, fields, 8 + length) for name, fields in table.items()}
    end, previous = 8 + length, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.start != end:
            raise InputError(f"{path}: tensor {name} starts at byte {entry.start}, {previous} ends at {end}")
        end, previous = entry.stop, name
    if end != status.st_size:
        raise InputError(f"{path}: tensors end at byte {end}, the file has {status.st_size}")
    return entries


def _entry(path: Path, name: str, fields: Any, base: int) -> Entry:
    if not NAME.fullmatch(name):
        raise InputError(f"{path}: tensor name {name!r:.80} is not a plain name")
    try:
        dtype, shape, (start, stop) = fields["dtype"], tuple(fields["shape"]), fields["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise InputError(f"{path}: tensor {name} lacks dtype, shape or two offsets") from None
    numbers = (*shape, start, stop)
    if any(type(n) is not int or not 0 <= n < 2**63 for n in numbers) or len(shape) > 8 or stop < start:
        raise InputError(f"{path}: tensor {name} has impossible shape or offsets")
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise InputError(f"{path}: tensor {name} has dtype {dtype!r:.20}, not one of {', '.join(ITEM_SIZES)}")
    size = math.prod(shape) * ITEM_SIZES[dtype]
    if size != stop - start:
        raise InputError(f"{path}: tensor {name} of shape {list(shape)} needs {size} bytes, has {stop - start}")
    return Entry(dtype, shape, base + start, base + stop)


class Grouping(NamedTuple):
    group: int  # numbers that share a scale
    offset: bool  # and an offset as well


class TensorFile:
    """A safetensors file whose tensors, known from its header, are views of its memory map."""

    def __init__(self, path: Path, entries: dict[str, Entry]):
        self.path, self.entries = path, entries
        with path.open("rb") as file:
            # Private and writable: torch refuses read-only memory, and nothing written would reach the file.
            self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(self, name: str) -> Tensor:
        import torch

        entry = self.entries[name]
        if entry.dtype not in FLOATS:
            raise InputError(f"{self.path}: tensor {name} is {entry.dtype}, weights must be {', '.join(FLOATS)}")
        dtype, count = getattr(torch, FLOATS[entry.dtype]), math.prod(entry.shape)
        if count == 0:
            return torch.empty(entry.shape, dtype=dtype)
        return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=entry.start).view(entry.shape)

    def grouping(self, name: str) -> Grouping | None:
        """How a tensor's numbers share scales, where it is stored as codes."""
        return None

    def codes(self, name: str) -> Codes:
        raise AssertionError(f"{name} is not stored as codes")

    def forget(self, name: str, share: float = 1.0) -> None:
        """Gives the pages of a tensor, or of its first part, back once its numbers were copied elsewhere."""
        entry = self.entries[name]
        first = -(-entry.start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (entry.start + int(share * (entry.stop - entry.start))) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED, first, last - first)


class Stored(NamedTuple):
    """One tensor of a file."""

    file: TensorFile
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.file.entries[self.name].shape

    @property
    def grouping(self) -> Grouping | None:
        return self.file.grouping(self.name)

    def tensor(self) -> Tensor:
        return self.file.tensor(self.name)

    def codes(self) -> Codes:
        return self.file.codes(self.name)

    def forget(self, share: float = 1.0) -> None:
        self.file.forget(self.name, share)
