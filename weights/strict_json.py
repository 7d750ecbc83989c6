"""JSON from files we did not write: bounded, without duplicate keys, NaN or infinite numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from transformer.errors import InputError

MEGABYTE = 1 << 20


def read_json(path: Path, limit: int = 16 * MEGABYTE) -> dict[str, Any]:
    """The object in a JSON file; whatever is wrong with it is an InputError that names the file."""
    try:
        size = path.stat().st_size
        if size > limit:
            raise InputError(f"{path}: {size} bytes, more than the {limit} such a file may have")
        return parse_json(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def parse_json(data: bytes, source: str) -> dict[str, Any]:
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise InputError(f"{source}: JSON nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{source}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{source}: expected a JSON object, found {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice")
    return table


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is out of range")
    return number
