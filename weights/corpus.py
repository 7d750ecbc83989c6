"""Text -> memory-mapped ids.

train.ids valid.ids    all sources one after the other
train.mask valid.mask  where conversations are among them: 1 for what is to be learnt
corpus.json            which source lies where, and where the held-out documents begin
"""

from __future__ import annotations

import json
import mmap
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from transformer.data import Span, Tokens
from transformer.errors import InputError
from weights.base import Base
from weights.conversations import encode_conversation, read_conversations
from weights.documents import Part, lot, read_parts, validation_share
from weights.sources import Source
from weights.strict_json import MEGABYTE, read_json
from weights.vocabulary import Report, has_conversations, texts, token_bytes

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 256  # parts encoded at once


@dataclass(frozen=True)
class Placed:
    """Where a source lies."""

    train: Span
    valid: Span
    documents: tuple[int, ...]  # where the held-out ones begin

    def held_out(self) -> list[Span]:
        return [Span(*edges) for edges in pairwise((*self.documents, self.valid.stop))]


@dataclass(frozen=True)
class Corpus:
    train: Tokens
    valid: Tokens
    sources: dict[str, Placed]
    token_bytes: Tensor = field(repr=False)  # (V,)


class Piece(NamedTuple):
    """A part of a document, or a conversation."""

    text: str
    ids: list[int]
    learnt: list[bool] | None  # all of it, where None
    first: bool


class Writer:
    """Appends ids to NAME.ids and, if there are conversations, what is learnt to NAME.mask."""

    def __init__(self, directory: Path, name: str, kind: str, masked: bool):
        self.kind, self.length = kind, 0
        self.chat = False  # the document at hand is a conversation: its template begins and ends it
        self.ids: BinaryIO = (directory / f"{name}.ids").open("wb")
        self.mask: BinaryIO | None = (directory / f"{name}.mask").open("wb") if masked else None

    def write(self, ids: list[int], learnt: list[bool] | None) -> None:
        array(self.kind, ids).tofile(self.ids)
        if self.mask is not None:
            self.mask.write(bytes(len(ids) * [1] if learnt is None else learnt))
        self.length += len(ids)

    def begin(self, base: Base, piece: Piece) -> None:
        self.chat = piece.learnt is not None
        if piece.ids[: len(base.begin)] != list(base.begin):
            self.write(list(base.begin), [False] * len(base.begin) if self.chat else None)

    def end(self, base: Base) -> None:
        if not self.chat:
            self.write(list(base.end), None)

    def close(self) -> None:
        self.ids.close()
        if self.mask is not None:
            self.mask.close()


def encode_corpus(sources: list[Source], base: Base, directory: Path, report: Report) -> None:
    """Writes the ids of all sources into the directory, which exists and is empty."""
    share = validation_share(sum(source.size() for source in sources))
    kind = "H" if base.config.vocab_size <= 1 << 16 else "I"
    masked, table, done = has_conversations(sources), [], 0
    with (
        closing(Writer(directory, "train", kind, masked)) as train,
        closing(Writer(directory, "valid", kind, masked)) as valid,
    ):
        for source in sources:
            starts = train.length, valid.length
            documents = []
            for length, beginning in _encode(source, base, train, valid, share):
                documents += [] if beginning is None else [beginning]
                done += length
                report(done)
            spans = {"train": [starts[0], train.length], "valid": [starts[1], valid.length]}
            table.append({"name": source.name, **spans, "documents": documents})
    (directory / "corpus.json").write_text(json.dumps({"type": kind, "sources": table}) + "\n")


def _encode(source: Source, base: Base, train: Writer, valid: Writer, share: float) -> Iterator[tuple[int, int | None]]:
    """Writes a source piece by piece: how many bytes of text each was, and where, if a held-out document began."""
    held_out = _chooser(source, share)
    before: Writer | None = None  # where the piece before went
    for piece in _pieces(source, base):
        target, beginning = valid if held_out(lot(piece.text)) else train, None
        if piece.first or target is not before:
            if before is not None:
                before.end(base)
            beginning = valid.length if target is valid else None
            target.begin(base, piece)
        target.write(piece.ids, piece.learnt)
        before = target
        yield len(piece.text.encode()), beginning
    if before is not None:
        before.end(base)


def _pieces(source: Source, base: Base) -> Iterator[Piece]:
    for file in source.files():
        if file.suffix == ".jsonl":
            if base.template is None:
                raise InputError(f"{file}: the model to go on with has no chat template")
            for conversation in read_conversations(file):
                ids, learnt = encode_conversation(conversation, base.template, base.tokenizer)
                yield Piece(conversation.text, ids, learnt, True)
        else:
            yield from _encoded(read_parts(file), base)


def _encoded(parts: Iterator[Part], base: Base) -> Iterator[Piece]:
    while batch := [part for part, _ in zip(parts, range(BATCH), strict=False)]:
        for part, ids in zip(batch, base.tokenizer.encode_many([part.text for part in batch]), strict=True):
            yield Piece(part.text, ids, None, part.first)


def _chooser(source: Source, share: float) -> Callable[[float], bool]:
    """Which lots are held out: those below the share, as long as that leaves something on both sides and more of it
    to train on. Of a few documents it is the lowest that is not most of the text; of a single one, none."""
    sizes: Counter[float] = Counter()
    held = 0
    for file in source.files():
        for text in texts(file):
            number = lot(text)
            sizes[number] += len(text)
            held += len(text) * (number < share)
            if 0 < held < sizes.total() / 2:
                return lambda number: number < share
    lowest = min((number for number, size in sizes.items() if size <= sizes.total() / 2), default=None)
    return lambda number: number == lowest


def open_corpus(directory: Path, base: Base) -> Corpus:
    table = read_json(directory / "corpus.json", limit=256 * MEGABYTE)
    sources = {
        row["name"]: Placed(Span(*row["train"]), Span(*row["valid"]), tuple(row["documents"]))
        for row in table["sources"]
    }
    train, valid = (_open_tokens(directory, name, table["type"]) for name in ("train", "valid"))
    return Corpus(train, valid, sources, token_bytes(base.tokenizer.backend, base.config.vocab_size))


def _open_tokens(directory: Path, name: str, kind: str) -> Tokens:
    import torch

    ids = _mapped(directory / f"{name}.ids", torch.uint16 if kind == "H" else torch.uint32)
    mask = directory / f"{name}.mask"
    return Tokens(ids, _mapped(mask, torch.bool) if mask.exists() else None)


def _mapped(path: Path, dtype: Any) -> Tensor:
    import torch

    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return torch.empty(0, dtype=dtype)
        # Private and writable: torch refuses read-only memory, and nothing written would reach the file.
        return torch.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), dtype=dtype)
