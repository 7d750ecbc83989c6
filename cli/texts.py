"""explain --jsonl: many texts, one load, one JSON object a line in input order."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from cli.prompt import decode
from transformer.errors import InputError

LINE_LIMIT = 64 << 20  # bytes


def explain_lines(source: str, answer: Callable[[str], dict[str, Any]]) -> int:
    """1 if any line failed; a bad line never stops the others."""
    failed = 0
    for index, line in enumerate(_lines(source)):
        result: dict[str, Any] = {"index": index}
        try:
            name, text = _parse(line, index)
            if name is not None:
                result["id"] = name
            result |= answer(text)
        except InputError as error:
            failed, result["error"] = 1, str(error)
        sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    return failed


def _lines(source: str) -> Iterator[bytes]:
    """Lines that hold something, of a file or of stdin."""
    try:
        stream: IO[bytes] = sys.stdin.buffer if source == "-" else open(source, "rb")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{source}: {error.strerror}") from None
    while line := stream.readline(LINE_LIMIT + 1):
        if line.strip():
            yield line


def _parse(line: bytes, index: int) -> tuple[Any, str]:
    """A line's own id, if it has one, and its text."""
    if len(line) > LINE_LIMIT:
        raise InputError(f"line {index}: more than {LINE_LIMIT} bytes")
    try:
        value = json.loads(decode(line, f"line {index}"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {index}: not valid JSON: {error}") from None
    text = value.get("text", value.get("prompt")) if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise InputError(f'line {index}: needs a string, or an object with a "text"')
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"line {index}: half a surrogate pair at character {error.start}") from None
    return (value.get("id") if isinstance(value, dict) else None), text
