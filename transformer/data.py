"""Which tokens stand in which training sample: a pure function of the seed and the sample's number.

Nothing is drawn one after the other, so a run is resumed by a single number, and any number of processes can share
the samples out among themselves without repeating or skipping one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.errors import InputError

MASK64 = (1 << 64) - 1


def mixed(*numbers: int) -> int:
    """64 bits that depend on every bit of the numbers (the finaliser of splitmix64)."""
    h = 0
    for number in numbers:
        h = (h ^ number) + 0x9E3779B97F4A7C15 & MASK64
        h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        h = (h ^ h >> 27) * 0x94D049BB133111EB & MASK64
        h ^= h >> 31
    return h


def shuffled(index: int, count: int, *key: int) -> int:
    """Where a permutation of range(count), picked by the key, puts index; no table of it is ever made.

    A Feistel network permutes the next power of four; what falls outside is sent through again."""
    half = ((count - 1).bit_length() + 1) // 2
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for turn in range(4):
            left, right = right, left ^ mixed(right, turn, *key) & low
        index = left << half | right
        if index < count:
            return index


class Span(NamedTuple):
    """Tokens start to stop of the encoded text."""

    start: int
    stop: int


@dataclass(frozen=True)
class Tokens:
    """Encoded text, memory-mapped: ids, and for each whether it is to be learnt (all, where None)."""

    ids: Tensor  # (N,) of some integer type
    learnt: Tensor | None = None  # (N,) bool

    def read(self, span: Span) -> tuple[Tensor, Tensor]:
        ids = self.ids[span.start : span.stop].long()
        if self.learnt is None:
            return ids, torch.ones(len(ids), dtype=torch.bool)
        return ids, self.learnt[span.start : span.stop].bool()


class Batch(NamedTuple):
    ids: Tensor  # (B, T)
    targets: Tensor  # (B, T), IGNORED where nothing is to be learnt
    learnt: int  # how many targets are to be learnt
    starts: tuple[int, ...] = ()  # where each sample begins in the text


IGNORED = -100  # what cross_entropy leaves out


class Documents(NamedTuple):
    """Encoded text in which every document begins with the same token."""

    tokens: Tokens
    begin: int


class Strand:
    """Spans read as one ring and cut into samples of `length` tokens, anew in every pass.

    Where the document that a cut falls into is known and begins less than a sample before, the sample begins there:
    what is said of its persons and things can only be understood by one who saw them introduced. Half of these samples
    leave out the token that begins the document, as prompts do."""

    def __init__(self, spans: Sequence[Span], length: int, documents: Documents | None = None):
        self.spans, self.length = [span for span in spans if span.stop > span.start], length
        self.documents = documents
        self.tokens = sum(span.stop - span.start for span in self.spans)
        self.samples = max(self.tokens - 1, 0) // length

    def sample(self, index: int, *key: int) -> Iterator[Span]:
        """The spans of the index-th sample: every sample of a pass comes before any of the next."""
        turn, place = divmod(index, self.samples)
        shift = mixed(turn, *key) % self.tokens if turn else 0
        start = (shift + shuffled(place, self.samples, turn, *key) * self.length) % self.tokens
        if self.documents is not None:
            start = (start - self._inside(start, self.documents) + mixed(index, *key) % 2) % self.tokens
        yield from self._slice(start, self.length + 1)  # one more: every token but the first is also a target

    def _inside(self, start: int, documents: Documents) -> int:
        """How many tokens of the document that `start` lies in stand before it; none if it begins too far back."""
        before = self._slice((start + 1 - self.length) % self.tokens, self.length)
        ids = torch.cat([documents.tokens.read(span)[0] for span in before])
        begins = (ids == documents.begin).nonzero()
        return self.length - 1 - int(begins[-1]) if len(begins) else 0

    def _slice(self, start: int, length: int) -> Iterator[Span]:
        while length:
            for span in self.spans:
                size = span.stop - span.start
                if start < size and length:
                    take = min(size - start, length)
                    yield Span(span.start + start, span.start + start + take)
                    start, length = start + take, length - take
                start -= size


class Mixture:
    """Strands read side by side, each `weight` times an epoch. If `alike`, every epoch has the samples of the first
    one, in another order."""

    def __init__(self, strands: Sequence[tuple[Strand, float]], seed: int, alike: bool = False):
        self.seed, self.alike = seed, alike
        self.strands = [strand for strand, weight in strands if strand.samples and weight > 0]
        self.quotas = [max(1, round(s.samples * weight)) for s, weight in strands if s.samples and weight > 0]
        self.epoch = sum(self.quotas)  # samples
        self.length = strands[0][0].length if strands else 0
        if not self.epoch:
            raise InputError(f"no source has the {self.length} + 1 tokens of one sample")

    def sample(self, index: int) -> Iterator[Span]:
        turn, place = divmod(index, self.epoch)
        slot = shuffled(place, self.epoch, self.seed, turn)
        for number, (strand, quota) in enumerate(zip(self.strands, self.quotas, strict=True)):
            if slot < quota:
                at = slot % strand.samples if self.alike else turn * quota + slot
                return strand.sample(at, self.seed, number)
            slot -= quota
        raise AssertionError("the quotas fill an epoch")


def batch(tokens: Tokens, samples: Sequence[Sequence[Span]]) -> Batch:
    """Samples of equal length as one batch."""
    rows = [[torch.cat(parts) for parts in zip(*map(tokens.read, spans), strict=True)] for spans in samples]
    ids = torch.stack([row for row, _ in rows])  # (B, T + 1)
    learnt = torch.stack([row for _, row in rows])[:, 1:]
    targets, starts = ids[:, 1:].masked_fill(~learnt, IGNORED), tuple(spans[0].start for spans in samples)
    return Batch(ids[:, :-1], targets, int(learnt.sum()), starts)
