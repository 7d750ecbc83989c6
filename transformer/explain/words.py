"""Pieces into words, by their offsets in the text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import torch

from transformer.recording import Observer, Rows, show

JOINERS = "\u200d\ufe0e\ufe0f"  # zero-width joiner, variation selectors
FLAG_LETTERS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
SCRIPTS_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC")


def words(text: str, spans: Sequence[tuple[int, int]]) -> list[range]:
    """The pieces of each word, in order. A word is a run of letters, digits and inner apostrophes with the space
    before it, a character of a script without spaces, or another character; pieces that share a character, or a
    piece that reaches into the next word, keep words together."""
    word_of = _word_of_character(text)
    groups: list[range] = []
    reached = -1  # the last word that the current group has part in
    for piece, (start, end) in enumerate(spans):
        first, last = (word_of[start], word_of[end - 1]) if end > start else (-1, -1)
        if groups and end > start and first <= reached:
            groups[-1] = range(groups[-1].start, piece + 1)
            reached = max(reached, last)
        else:
            groups.append(range(piece, piece + 1))
            reached = last if end > start else reached
    return groups


def _word_of_character(text: str) -> list[int]:
    numbers, word = [], -1
    for at, character in enumerate(text):
        word += not _continues(text, at, character)
        numbers.append(word)
    return numbers


def _continues(text: str, at: int, character: str) -> bool:
    """Whether a character belongs to the word of the one before it."""
    if at == 0:
        return False
    before, after = text[at - 1], text[at + 1 : at + 2]
    if _extends(character) or before == JOINERS[0] or _ends_flag(text, at):
        return True
    if before.isspace():
        return True
    if character in "'’":
        return _is_letter(before) and _is_letter(after)
    if before in "'’":
        return _is_letter(character) and at > 1 and _is_letter(text[at - 2])
    return _is_letter(character) and (_is_letter(before) or _extends(before))


def _extends(character: str) -> bool:
    """Marks, joiners and skin tones: nothing of their own."""
    return (
        character in JOINERS or unicodedata.category(character)[0] == "M" or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _ends_flag(text: str, at: int) -> bool:
    """A flag is two letters of an alphabet of its own; of more in a row, the first two belong together."""
    before = at
    while before and text[before - 1] in FLAG_LETTERS:
        before -= 1
    return text[at] in FLAG_LETTERS and (at - before) % 2 == 1


def _is_letter(character: str) -> bool:
    """Of a script that puts spaces between words."""
    return character[:1].isalnum() and not unicodedata.name(character, "").startswith(SCRIPTS_WITHOUT_SPACES)


class InWords(Observer):
    """Shows other observers words instead of pieces: a word reads with its last piece, the only one that has seen
    it whole, and what its pieces are read with is added up."""

    def __init__(self, groups: Sequence[range], *observers: Observer):
        self.groups, self.observers = groups, observers
        self.word_of = torch.tensor([word for word, pieces in enumerate(groups) for _ in pieces])
        wanted = {word for o in observers for word in (range(len(groups)) if o.rows is None else o.rows)}
        self.rows = sorted(groups[word][-1] for word in wanted)
        layers = [o.layers for o in observers]
        self.layers = None if None in layers else {layer for some in layers for layer in some or ()}

    def memory(self) -> int:
        return sum(observer.memory() for observer in self.observers)

    def attention(self, rows: Rows) -> None:
        of = self.word_of.to(rows.queries.device)
        first = int(of[rows.first])
        columns = of[rows.keys] - first
        weights = rows.weights.new_zeros(*rows.weights.shape[:2], int(columns[-1]) + 1)
        weights.index_add_(2, columns, rows.weights)
        show(Rows(rows.layer, of[rows.queries], first, weights), self.observers)

    def stream(self, layer: int, part: str, x: torch.Tensor) -> None:
        for observer in self.observers:
            observer.stream(layer, part, x)
