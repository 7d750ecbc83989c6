"""Where a prompt comes from: an argument, `-`, a pipe, a file."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from transformer.errors import InputError

LIMIT = 64 << 20  # bytes; no context is that long


def read_prompt(argument: str | None, file: Path | None, no_stdin: bool) -> str:
    """Stdin or file, then the argument, with a newline between them where there are both."""
    text = None
    if argument == "-":
        argument, text = None, _read_stdin()
    elif file is not None:
        text = read_file(file)
    elif not no_stdin and stdin_is_data():
        text = _read_stdin()
    if argument is not None:
        argument = decode(os.fsencode(argument), "the prompt")
    parts = [part for part in (text or None, argument) if part is not None]
    if not parts:
        raise InputError('no prompt: give it as an argument, by a pipe, or with --file (see "tfm generate --help")')
    return "\n".join(parts)


def stdin_is_data() -> bool:
    """A pipe or a file; not a terminal, /dev/null or a socket that may never end."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InputError("stdin is closed")
    return _text(sys.stdin.buffer.read(LIMIT + 1), "stdin")


def read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _text(file.read(LIMIT + 1), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _text(data: bytes, source: str) -> str:
    if len(data) > LIMIT:
        raise InputError(f"{source}: more than {LIMIT} bytes, which no context holds")
    return decode(data, source).removesuffix("\n")


def decode(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-8 at byte {error.start} of {len(data)}") from None
