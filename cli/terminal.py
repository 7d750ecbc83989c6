"""The one sink through which foreign text leaves, and the streams it leaves by."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from transformer.errors import EnvironmentFailed

if TYPE_CHECKING:
    from rich.console import Console

CLOSED_PIPE = 141
WIDTH = 100  # columns off a terminal

# C0 but tab and newline, DEL, C1, line and paragraph separators, bidirectional controls.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """The same text with every character made visible that could act on a terminal instead of being shown."""
    return UNSEEN.sub(lambda match: _visible(match.group()), text)


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return "^" + chr(code ^ 0x40)
    return f"⟨U+{code:04X}⟩"


class Guarded:
    """A stream whose reader may leave: then the program ends as silently as `head` lets any other end."""

    def __init__(self, stream: TextIO, name: str):
        self._stream, self._name = stream, name

    def write(self, text: str) -> int:
        return self._try(lambda: self._stream.write(text))

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, action: Any) -> Any:
        try:
            return action()
        except BrokenPipeError:
            _silence(self._stream)
            raise SystemExit(CLOSED_PIPE) from None
        except OSError as error:
            _silence(self._stream)
            if error.errno == errno.EBADF:
                raise SystemExit(CLOSED_PIPE) from None
            raise EnvironmentFailed(f"{self._name}: {error.strerror}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _silence(stream: TextIO) -> None:
    """What is still buffered goes nowhere, so that the interpreter's last flush cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def guard_streams() -> None:
    """UTF-8 out, whatever the locale; a closed or full stdout is met with an exit code, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.stdout = Guarded(sys.stdout, "stdout")


def complain(message: str) -> None:
    """An error: always one line."""
    note(f"tfm: error: {' '.join(safe(message).split())}")


def note(line: str) -> None:
    """A line for the person at the terminal, on stderr."""
    with suppress(OSError, AttributeError):  # stderr may be closed: nobody to tell
        print(line, file=sys.stderr, flush=True)


def progress(line: str) -> None:
    """A line that the next one replaces; only for a terminal. An empty one clears it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r\x1b[2K{safe(line)}", end="", file=sys.stderr, flush=True)


def colourful(stream: TextIO) -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def console(stream: TextIO | None = None) -> Console:
    """A rich console that follows NO_COLOR, TERM, TTY and COLUMNS, and never interprets what it prints."""
    from rich.console import Console

    stream = stream or sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else int(os.environ.get("COLUMNS") or WIDTH),
        no_color=not colourful(stream),
        force_terminal=colourful(stream),
        markup=False,
        highlight=False,
        emoji=False,
    )
