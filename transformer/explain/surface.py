"""A token as a person would write it. Bytes that are not whole characters show as ⟨e5 9c⟩."""

from __future__ import annotations

import codecs
from functools import cache

from transformer.tokenizer import BYTE_PIECE, UNDECIDED, Tokenizer


def surface(tokenizer: Tokenizer, id: int) -> str:
    """The text of one id, its leading space included; an id without a token is ⟨id⟩."""
    piece = tokenizer.piece(id)
    if piece is None:
        return f"⟨{id}⟩"
    if piece in tokenizer.specials:
        return piece
    if BYTE_PIECE.fullmatch(piece):
        return text_of(bytes([int(piece[3:5], 16)]))
    alone = tokenizer.decode([id])
    spelled = _spelled(piece)
    if spelled is not None and spelled.decode(errors="replace") == alone:
        return text_of(spelled)
    return alone if UNDECIDED in alone else piece.replace("▁", " ")


def text_of(data: bytes) -> str:
    return data.decode(errors="lone_bytes")


def _lone(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return f"⟨{error.object[error.start : error.end].hex(' ')}⟩", error.end


codecs.register_error("lone_bytes", _lone)


def _spelled(piece: str) -> bytes | None:
    """The bytes behind a byte-level piece, if it is one."""
    alphabet = _byte_alphabet()
    return bytes(alphabet[c] for c in piece) if all(c in alphabet for c in piece) else None


@cache
def _byte_alphabet() -> dict[str, int]:
    """Byte-level tokenizers spell bytes as characters: printable ones as themselves, the others from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(b): b for b in own} | {chr(0x100 + n): b for n, b in enumerate(others)}
