"""Text -> tokenizer -> memory-mapped ids.

train.ids valid.ids    all sources one after the other; each document begins with the separator
train.mask valid.mask  where a source is a conversation: 1 for the tokens to be learnt
corpus.json            which source lies where
"""

from __future__ import annotations

import json
import mmap
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from transformer.data import Span, Tokens
from transformer.errors import InputError
from weights.documents import SEPARATOR, Part, lot, read_parts, validation_share
from weights.strict_json import MEGABYTE, read_json

if TYPE_CHECKING:
    from torch import Tensor

TOKENIZER_BYTES = 100 * MEGABYTE  # of text from which a tokenizer learns, at most
BATCH = 256  # parts encoded at once
MANY = 16  # files, above which a directory of them counts as one source
SUFFIXES = (".txt", ".md", ".jsonl")

Report = Callable[[int], None]  # bytes of text done so far


@dataclass(frozen=True)
class Source:
    """What is weighted and reported on as one: a file, a directory, or many files of one directory."""

    name: str
    paths: tuple[Path, ...]
    weight: float = 1.0

    def files(self) -> list[Path]:
        return [file for path in self.paths for file in _files(path)]

    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files())


@dataclass(frozen=True)
class Encoded:
    """Where a source lies in train.ids and valid.ids."""

    name: str
    train: Span
    valid: Span
    documents: tuple[int, ...]  # where the held-out documents begin


@dataclass(frozen=True)
class Corpus:
    train: Tokens
    valid: Tokens
    sources: dict[str, Encoded]
    token_bytes: Tensor = field(repr=False)  # (V,), how many bytes of text a token stands for


def parse_sources(*lists: Iterable[str]) -> list[list[Source]]:
    """`text.txt`, or `text.txt:2` to read it twice an epoch. Says nothing about what is there: a run can go on
    when the text is gone, because it has it encoded."""
    parsed = [[_weighted(argument) for argument in arguments] for arguments in lists]
    paths = {path for sources in parsed for path, _ in sources}
    whole = len(paths) > MANY  # then by directory
    stems = Counter(path.stem for path in paths)
    answer = []
    for sources in parsed:
        groups: dict[tuple[str, float], list[Path]] = {}
        for path, weight in sources:
            name = str(path.parent) if whole else path.stem if stems[path.stem] == 1 else str(path)
            group = groups.setdefault((name, weight), [])
            if path in group:
                raise InputError(f"{path}: given twice")
            group.append(path)
        answer.append([Source(name, tuple(group), weight) for (name, weight), group in groups.items()])
    return answer


def _weighted(argument: str) -> tuple[Path, float]:
    found = re.fullmatch(r"(.+):(\d+(?:\.\d+)?)", argument)
    if not found:
        return Path(argument), 1.0
    if not 0 < float(found[2]) <= 1000:
        raise InputError(f"{argument}: a weight must lie between 0 and 1000, got {found[2]}")
    return Path(found[1]), float(found[2])


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: no such file")
    files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    if not files:
        raise InputError(f"{path}: no {', '.join(SUFFIXES)} file in this directory")
    return files


def train_tokenizer(sources: list[Source], vocab_size: int, report: Report) -> Tokenizer:
    """Byte-level BPE over the training documents: any text can be encoded, nothing is added by itself."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if vocab_size <= len(alphabet):
        raise InputError(f"a vocabulary of {vocab_size} has no room for the {len(alphabet)} bytes and {SEPARATOR}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[SEPARATOR], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_training_text(sources, report), trainer)
    return tokenizer


def _training_text(sources: list[Source], report: Report) -> Iterator[str]:
    """The training documents, thinned out by their own lot where there are too many."""
    total = sum(source.size() for source in sources)
    held_out = validation_share(total)
    wanted = held_out + (1 - held_out) * min(1.0, TOKENIZER_BYTES / max(total, 1))
    done = 0
    for source in sources:
        for part in source_parts(source):
            done += len(part.text.encode())
            report(done)
            if held_out <= lot(part.text) <= wanted:
                yield part.text


def source_parts(source: Source) -> Iterator[Part]:
    for file in source.files():
        yield from read_parts(file)


def encode_corpus(sources: list[Source], tokenizer: Tokenizer, directory: Path, report: Report) -> None:
    """Writes the ids of all sources into the directory, which exists and is empty."""
    separator: int = tokenizer.token_to_id(SEPARATOR)  # type: ignore[assignment]  # it is ours
    share = validation_share(sum(source.size() for source in sources))
    kind = "H" if tokenizer.get_vocab_size() <= 1 << 16 else "I"
    tokenizer.encode_special_tokens = True  # the separator inside a line is mere text
    done, table = 0, []
    with (directory / "train.ids").open("wb") as train, (directory / "valid.ids").open("wb") as valid:
        for source in sources:
            starts = [train.tell() // array(kind).itemsize, valid.tell() // array(kind).itemsize]
            documents = []
            fallback = _only_candidate(source, share)
            previous = None
            for part, ids in _encoded(source, tokenizer):
                held_out = (number := lot(part.text)) < share or number == fallback
                file = valid if held_out else train
                if part.first or held_out is not previous:
                    if held_out:
                        documents.append(file.tell() // array(kind).itemsize)
                    ids = [separator, *ids]
                array(kind, ids).tofile(file)
                previous = held_out
                done += len(part.text.encode())
                report(done)
            stops = [train.tell() // array(kind).itemsize, valid.tell() // array(kind).itemsize]
            table.append(
                {
                    "name": source.name,
                    "train": [starts[0], stops[0]],
                    "valid": [starts[1], stops[1]],
                    "documents": documents,
                }
            )
    tokenizer.encode_special_tokens = False
    (directory / "corpus.json").write_text(json.dumps({"type": kind, "sources": table}) + "\n")


def _encoded(source: Source, tokenizer: Tokenizer) -> Iterator[tuple[Part, list[int]]]:
    parts: list[Part] = []
    for part in source_parts(source):
        parts.append(part)
        if len(parts) == BATCH:
            yield from _encode_batch(parts, tokenizer)
            parts = []
    yield from _encode_batch(parts, tokenizer)


def _encode_batch(parts: list[Part], tokenizer: Tokenizer) -> Iterator[tuple[Part, list[int]]]:
    encodings = tokenizer.encode_batch_fast([part.text for part in parts], add_special_tokens=False)
    for part, encoding in zip(parts, encodings, strict=True):
        yield part, encoding.ids


def _only_candidate(source: Source, share: float) -> float | None:
    """Where no document of a source falls below the share, the lot of the lowest is drawn, if others remain."""
    lots = set()
    for part in source_parts(source):
        number = lot(part.text)
        if number < share:
            return None
        lots.add(number)
    return min(lots) if len(lots) > 1 else None


def open_corpus(directory: Path, tokenizer: Tokenizer) -> Corpus:
    table = read_json(directory / "corpus.json", limit=256 * MEGABYTE)
    sources = {
        row["name"]: Encoded(row["name"], Span(*row["train"]), Span(*row["valid"]), tuple(row["documents"]))
        for row in table["sources"]
    }
    train, valid = (_open_tokens(directory, split, table["type"]) for split in ("train", "valid"))
    return Corpus(train, valid, sources, token_bytes(tokenizer))


def _open_tokens(directory: Path, split: str, kind: str) -> Tokens:
    import torch

    ids = _mapped(directory / f"{split}.ids", torch.uint16 if kind == "H" else torch.uint32)
    mask = directory / f"{split}.mask"
    return Tokens(ids, _mapped(mask, torch.bool) if mask.exists() else None)


def _mapped(path: Path, dtype: Any) -> Tensor:
    import torch

    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return torch.empty(0, dtype=dtype)
        # Private and writable: torch refuses read-only memory, and nothing written would reach the file.
        return torch.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), dtype=dtype)


def token_bytes(tokenizer: Tokenizer) -> Tensor:
    """How many bytes of text each token stands for; 0 for special tokens. (V,)"""
    import torch

    counts = torch.zeros(tokenizer.get_vocab_size(), dtype=torch.int64)
    byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
    special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    for piece, id in tokenizer.get_vocab().items():
        if id in special:
            continue
        if byte_level:
            counts[id] = len(piece)  # one letter of its alphabet a byte
        elif piece.startswith("<0x") and piece.endswith(">"):
            counts[id] = 1
        else:
            counts[id] = len(piece.replace("▁", " ").encode())
    return counts
