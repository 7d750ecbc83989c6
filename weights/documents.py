"""Text files -> documents, and which of them are kept for validation.

Documents end at a line that holds only `<|endoftext|>`, and at the end of a file. A file is read in blocks and a
long document given out in parts, so none of it need fit in memory.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from transformer.errors import InputError

SEPARATOR = "<|endoftext|>"
SEPARATOR_LINE = re.compile(r"^<\|endoftext\|>(?:\n|\Z)", re.MULTILINE)
BLOCK = 1 << 20  # bytes read at once
PART = 1 << 16  # characters of a document given out at once
BREAK = re.compile(r"(?<=\S)\s(?=\S)")  # no tokenizer joins what stands left and right of here
SLACK = 1 << 12  # how far behind PART to look for a break


class Part(NamedTuple):
    text: str
    first: bool  # of its document


def read_parts(path: Path) -> Iterator[Part]:
    """The documents of a file, the long ones in several parts. Blank ones are left out, newlines made Unix."""
    text, first, ended = "", True, False
    for block in _blocks(path):
        text += block
        ended = block == ""
        while True:
            found = SEPARATOR_LINE.search(text)
            if found and (found.end() < len(text) or ended or found.group().endswith("\n")):
                yield from _cut(text[: found.start()], first)
                text, first = text[found.end() :], True
                continue
            break
        if len(text) > 2 * PART:
            *parts, rest = _cut(text, first)
            yield from parts
            text, first = rest.text + "\n" * text.endswith("\n"), False
    yield from _cut(text, first)


def _cut(text: str, first: bool) -> Iterator[Part]:
    """A document or its rest, in parts; the newline that only ends its last line is no part of it."""
    text, start = text.removesuffix("\n"), 0
    if not text.strip():
        return
    while len(text) - start > PART + SLACK:
        found = BREAK.search(text, start + PART, start + PART + SLACK)
        stop = found.start() if found else start + PART
        yield Part(text[start:stop], first)
        start, first = stop, False
    yield Part(text[start:], first)


def _blocks(path: Path) -> Iterator[str]:
    """The file's text block by block, then an empty string."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    read, carry = 0, ""
    try:
        with path.open("rb") as file:
            while data := file.read(BLOCK):
                pending = len(decoder.getstate()[0])
                try:
                    text = carry + decoder.decode(data)
                except UnicodeDecodeError as error:
                    raise InputError(f"{path}: not UTF-8 at byte {read - pending + error.start}") from None
                read += len(data)
                if read == len(data):
                    text = text.removeprefix("\ufeff")
                carry = "\r" if text.endswith("\r") else ""  # its newline may be in the next block
                if text := text[: len(text) - len(carry)]:
                    yield text.replace("\r\n", "\n")
            if pending := len(decoder.getstate()[0]):
                raise InputError(f"{path}: not UTF-8 at byte {read - pending}: the file ends inside a character")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if carry:
        yield carry
    yield ""


def validation_share(size: int) -> float:
    """The part of `size` bytes of text that is held out: a tenth of a megabyte, of more its square root."""
    return 0.1 / max(1.0, size / 1e6) ** 0.5


def lot(text: str) -> float:
    """A number from 0 to 1 that only the text decides: documents below the share are held out, copies together."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
