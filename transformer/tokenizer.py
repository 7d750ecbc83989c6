"""Text <-> ids, and the text of a growing list of ids as it becomes certain."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import tokenizers

from transformer.errors import InputError

BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
UNDECIDED = "\N{REPLACEMENT CHARACTER}"


class Encoded(NamedTuple):
    ids: list[int]
    spans: list[tuple[int, int]]  # characters of the text; an added special token has (0, 0)


class Tokenizer:
    def __init__(self, backend: tokenizers.Tokenizer, bos: int | None = None):
        """`bos` is put in front of a raw prompt, for tokenizers whose own post-processor does not do it."""
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.bos = bos
        vocabulary = self.vocabulary()
        self.size = max(vocabulary.values(), default=-1) + 1  # ids are below this
        added = backend.get_added_tokens_decoder().items()
        self.specials = {token.content: id for id, token in added if token.special}
        self._special_ids = frozenset(self.specials.values())
        self.longest = max((len(piece.encode()) for piece in vocabulary), default=1)  # bytes of a token, at most

    @classmethod
    def from_json(cls, text: str, source: str, bos: int | None = None) -> Tokenizer:
        with _panics(f"{source}: not a tokenizer"):
            return cls(tokenizers.Tokenizer.from_str(text), bos)

    def encode(self, text: str) -> Encoded:
        """A raw prompt: special tokens written out in the text count as such."""
        with _panics("the tokenizer failed on this text"):
            encoding = self.backend.encode(text)
        ids, spans = list(encoding.ids), list(encoding.offsets)
        if self.bos is not None and ids[:1] != [self.bos]:
            ids, spans = [self.bos, *ids], [(0, 0), *spans]
        return Encoded(ids, spans)

    def encode_template(self, text: str) -> list[int]:
        """What a chat template made: every special token is already in it."""
        with _panics("the tokenizer failed on this text"):
            return list(self.backend.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, text: str) -> list[int]:
        """Special tokens written out in the text are mere text."""
        self.backend.encode_special_tokens = True
        try:
            return self.encode_template(text)
        finally:
            self.backend.encode_special_tokens = False

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """The same for many texts at once, on all cores."""
        self.backend.encode_special_tokens = True
        try:
            with _panics("the tokenizer failed on this text"):
                return [e.ids for e in self.backend.encode_batch_fast(texts, add_special_tokens=False)]
        finally:
            self.backend.encode_special_tokens = False

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens and ids without a token are left out."""
        with _panics("the tokenizer failed on these ids"):
            return self.backend.decode([i for i in ids if i < self.size], skip_special_tokens=True)

    def vocabulary(self) -> dict[str, int]:
        return self.backend.get_vocab(with_added_tokens=True)

    def piece(self, id: int) -> str | None:
        """The token as the vocabulary spells it, in the tokenizer's own alphabet."""
        return self.backend.id_to_token(id)

    def id(self, piece: str) -> int | None:
        return self.backend.token_to_id(piece)

    def silent(self, id: int) -> bool:
        """Decodes to nothing: a special token, or no token at all."""
        return id in self._special_ids or self.piece(id) is None


class TextStream:
    """Text behind a prompt, piece by piece: no character is split, and the pieces add up to the whole decode.

    Primed with the end of the prompt, because some tokenizers drop the space of a first word.
    """

    CONTEXT = 8  # tokens kept so that the next ones decode as they would behind the whole text

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]):
        self.tokenizer = tokenizer
        self.ids = list(prompt[-self.CONTEXT :])
        self.given = len(tokenizer.decode(self.ids))  # characters of decode(ids) that were given out

    def feed(self, id: int) -> str:
        """The text that became certain with this token."""
        if self.tokenizer.silent(id):
            return ""
        self.ids.append(id)
        if BYTE_PIECE.fullmatch(self.tokenizer.piece(id) or ""):
            return ""  # a run of byte tokens is decoded as one, so wait for its end
        text = self.tokenizer.decode(self.ids)
        certain = text.removesuffix(UNDECIDED)  # the last one may be a character whose rest is to come
        new, self.given = certain[self.given :], max(self.given, len(certain))
        if certain == text and len(self.ids) > 4 * self.CONTEXT:
            self.ids = self.ids[-self.CONTEXT :]
            self.given = len(self.tokenizer.decode(self.ids))
        return new

    def flush(self) -> str:
        """What was held back, now that nothing follows."""
        return self.tokenizer.decode(self.ids)[self.given :]


@contextmanager
def _panics(what: str) -> Iterator[None]:
    """The tokenizer library panics on some inputs: not an Exception, and it writes to stderr by itself."""
    stderr = nowhere = -1
    with suppress(OSError):
        stderr = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{what}: {reason}") from None
    finally:
        if stderr >= 0:
            os.dup2(stderr, 2)
            os.close(stderr)
        if nowhere >= 0:
            os.close(nowhere)
