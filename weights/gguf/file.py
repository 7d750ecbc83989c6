"""GGUF files: one file with everything, read within its own bounds.

Every count and length is checked against the bytes that remain before anything is read or allocated for it.
Reading the metadata needs no torch.
"""

from __future__ import annotations

import math
import mmap
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.errors import InputError
from weights.gguf.blocks import FORMATS, as_codes, dequantize
from weights.strict_json import MEGABYTE
from weights.tensorfile import NAME, Entry, Grouping, TensorFile

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.int8 import Codes

STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "?", 10: "Q", 11: "q", 12: "d"}
TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 30: "BF16",
}  # fmt: skip
MAX_DIMENSIONS = 4
MAX_KEY = 65_535


@dataclass(frozen=True)
class Gguf:
    """What the head of a file says: every value by its key, every tensor with the bytes it lies in."""

    path: Path
    metadata: dict[str, Any]
    entries: dict[str, Entry]


def read_gguf(path: Path) -> Gguf:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: not a regular file")
        with path.open("rb") as file, _map(file, path) as memory:
            return _Head(memory, path).read()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _map(file: Any, path: Path) -> mmap.mmap:
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:  # what mmap says of an empty file
        raise InputError(f"{path}: 0 bytes, not a GGUF file") from None


class _Head:
    """A cursor over the head of a file."""

    def __init__(self, memory: mmap.mmap, path: Path):
        self.memory, self.path, self.at = memory, path, 0

    def read(self) -> Gguf:
        if self.take(4, "the magic number") != b"GGUF":
            raise self.error("not a GGUF file: it does not begin with 'GGUF'")
        version = self.scalar("I", "the version")
        if version not in (2, 3):
            raise self.error(f"GGUF version {version} is not supported, only 2 and 3")
        tensors, values = self.scalar("Q", "the number of tensors"), self.scalar("Q", "the number of values")
        self.expect(tensors, 8 + 4 + 8 + 4 + 8, "tensors")
        self.expect(values, 8 + 4 + 1, "values")
        metadata: dict[str, Any] = {}
        for _ in range(values):
            key = self.name("a key", MAX_KEY)
            if key in metadata:
                raise self.error(f"the key {key!r:.80} stands twice")
            metadata[key] = self.value(self.scalar("I", f"the type of {key}"), key)
        infos = [self.tensor_info() for _ in range(tensors)]
        return Gguf(self.path, metadata, self.layout(infos, self.alignment(metadata)))

    def value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self.string(key)
        if kind in SCALARS:
            return self.scalar(SCALARS[kind], key)
        if kind == ARRAY:
            return self.array(key)
        raise self.error(f"{key!r:.80} has the unknown type {kind}")

    def array(self, key: str) -> list[Any]:
        kind, count = self.scalar("I", key), self.scalar("Q", key)
        if kind == STRING:
            self.expect(count, 8, f"strings of {key}")
            return self.strings(count, key)
        if kind not in SCALARS:
            raise self.error(f"{key!r:.80} is an array of the type {kind}, which no array may have")
        size = struct.calcsize(SCALARS[kind])
        self.expect(count, size, f"elements of {key}")
        return list(struct.unpack(f"<{count}{SCALARS[kind]}", self.take(count * size, key)))

    def tensor_info(self) -> tuple[str, str, tuple[int, ...], int]:
        """Name, format, shape and offset within the data."""
        name = self.name("a tensor's name", 256)
        if not NAME.fullmatch(name):
            raise self.error(f"tensor name {name!r:.80} is not a plain name")
        count = self.scalar("I", name)
        if not 1 <= count <= MAX_DIMENSIONS:
            raise self.error(f"tensor {name} has {count} dimensions, not 1 to {MAX_DIMENSIONS}")
        shape = tuple(reversed([self.scalar("Q", name) for _ in range(count)]))  # theirs begin with the fastest
        kind, offset = self.scalar("I", name), self.scalar("Q", name)
        if kind not in TYPES:
            raise self.error(f"tensor {name} has the type {kind}, only {', '.join(TYPES.values())} are supported")
        if 0 in shape or shape[-1] % FORMATS[TYPES[kind]].width:
            width = FORMATS[TYPES[kind]].width
            raise self.error(f"tensor {name} has rows of {shape[-1]} in {list(shape)}, not in whole blocks of {width}")
        return name, TYPES[kind], shape, offset

    def alignment(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("general.alignment", 32)
        if type(value) is not int or not 0 < value <= MEGABYTE or value & (value - 1):
            raise self.error(f"general.alignment must be a power of two up to {MEGABYTE}, got {value!r:.60}")
        return value

    def layout(self, infos: list[tuple[str, str, tuple[int, ...], int]], alignment: int) -> dict[str, Entry]:
        """Tensors lie one behind the other, each at the next multiple of the alignment: no holes, no overlaps."""
        end = base = -(-self.at // alignment) * alignment
        entries: dict[str, Entry] = {}
        for name, kind, shape, offset in infos:
            if name in entries:
                raise self.error(f"tensor {name} stands twice")
            start = -(-end // alignment) * alignment
            if base + offset != start:
                raise self.error(f"tensor {name} starts at byte {base + offset}, the one before it leaves {start}")
            end = start + math.prod(shape) // FORMATS[kind].width * FORMATS[kind].size
            if end > len(self.memory):
                raise self.error(f"tensor {name} ends at byte {end}, the file at {len(self.memory)}")
            entries[name] = Entry(kind, shape, start, end)
        return entries

    def name(self, what: str, longest: int) -> str:
        text = self.string(what)
        if not 0 < len(text) <= longest:
            raise self.error(f"{what} has {len(text)} characters, not 1 to {longest}")
        return text

    def string(self, what: str) -> str:
        data = self.take(self.scalar("Q", what), what)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what!r:.80} is not UTF-8 at byte {self.at - len(data) + error.start}") from None

    def strings(self, count: int, what: str) -> list[str]:
        """What `string` would give one by one; written out, because a vocabulary has a hundred thousand."""
        memory, at, size = self.memory, self.at, len(self.memory)
        texts = []
        for _ in range(count):
            length = int.from_bytes(memory[at : at + 8], "little")
            if at + 8 + length > size:
                self.at = at
                return [self.string(what)]  # which says what is wrong
            texts.append(memory[at + 8 : at + 8 + length])
            at += 8 + length
        self.at = at
        try:
            return [text.decode() for text in texts]
        except UnicodeDecodeError:
            raise self.error(f"{what!r:.80} is not UTF-8") from None

    def scalar(self, code: str, what: str) -> Any:
        (value,) = struct.unpack("<" + code, self.take(struct.calcsize(code), what))
        return value

    def take(self, count: int, what: str) -> bytes:
        self.expect(count, 1, f"bytes of {what}")
        self.at += count
        return self.memory[self.at - count : self.at]

    def expect(self, count: int, size: int, what: str) -> None:
        left = len(self.memory) - self.at
        if count * size > left:
            raise self.error(f"{count} {what:.80} claimed at byte {self.at}, {left} bytes are left")

    def error(self, message: str) -> InputError:
        return InputError(f"{self.path}: {message}")


class GgufFile(TensorFile):
    """The tensors of a GGUF file in fp32: views of its memory map where stored so, else made when asked for."""

    def tensor(self, name: str) -> Tensor:
        if self.entries[name].dtype == "F32":
            return super().tensor(name)
        return dequantize(self.entries[name].dtype, self._data(name), self.entries[name].shape)

    def grouping(self, name: str) -> Grouping | None:
        return FORMATS[self.entries[name].dtype].grouping

    def codes(self, name: str) -> Codes:
        return as_codes(self.entries[name].dtype, self._data(name), self.entries[name].shape)

    def _data(self, name: str) -> Tensor:
        import torch

        _, _, start, stop = self.entries[name]
        return torch.frombuffer(self.memory, dtype=torch.uint8, count=stop - start, offset=start)
