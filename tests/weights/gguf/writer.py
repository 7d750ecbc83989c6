"""Writes GGUF files, right ones and wrong ones."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
CODES = {UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "?"}


class Raw(NamedTuple):
    """A tensor as bytes of a format: dimensions with the fastest first, as the file has them."""

    type: int
    dims: tuple[int, ...]
    data: bytes


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def value_type(value: Any) -> int:
    kinds = {bool: BOOL, int: UINT32, float: FLOAT32, str: STRING, list: ARRAY}
    return kinds[type(value)]


def scalar(kind: int, value: Any) -> bytes:
    return text(value) if kind == STRING else struct.pack("<" + CODES[kind], value)


def value_bytes(value: Any) -> bytes:
    if not isinstance(value, list):
        return scalar(value_type(value), value)
    kind = value_type(value[0]) if value else UINT32
    kind = INT32 if kind == UINT32 else kind
    return struct.pack("<IQ", kind, len(value)) + b"".join(scalar(kind, element) for element in value)


def key_value(key: str, value: Any) -> bytes:
    return text(key) + struct.pack("<I", value_type(value)) + value_bytes(value)


def tensor_info(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def raw(tensor: Tensor | Raw) -> Raw:
    if isinstance(tensor, Raw):
        return tensor
    return Raw(0, tuple(reversed(tensor.shape)), tensor.float().contiguous().numpy().tobytes())


def gguf_bytes(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor | Raw], version: int = 3) -> bytes:
    alignment = metadata.get("general.alignment", 32)
    infos, data = b"", b""
    for name, tensor in tensors.items():
        kind, dims, payload = raw(tensor)
        infos += tensor_info(name, dims, kind, len(data))
        data += payload + bytes(-len(payload) % alignment)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(key_value(key, value) for key, value in metadata.items()) + infos
    return head + bytes(-len(head) % alignment) + data


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor | Raw]) -> Path:
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path
