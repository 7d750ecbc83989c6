"""What is being explained: a model, a text, and how its tokens are called in tables."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.cells import cell_len

from cli.terminal import safe
from transformer.errors import InputError
from transformer.explain.decoded import Decoded
from transformer.explain.memory import estimate
from transformer.explain.surface import surface
from transformer.explain.words import InWords, words
from transformer.recording import Observer, Recorder

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.model import Transformer
    from weights.load import Loaded

VISIBLE = str.maketrans({"\n": "⏎", "\t": "⇥", "\r": "␍"})


@dataclass(frozen=True)
class Subject:
    """Tables speak of cells: tokens, or words made of several."""

    loaded: Loaded
    text: str
    ids: list[int]
    spans: list[tuple[int, int]]
    cells: list[range]  # the tokens of each
    prompt: int | None = None  # so many tokens were given, the others generated
    horizon: int = 0  # how long prompt and answer could have become
    decoded: Decoded | None = None  # rows kept while they were

    @property
    def model(self) -> Transformer:
        return self.loaded.model

    @cached_property
    def surfaces(self) -> list[str]:
        """Tokens as written, with their leading spaces."""
        return [self.surface(id) for id in self.ids]

    @cached_property
    def texts(self) -> list[str]:
        return [self._text(cell) for cell in self.cells]

    @cached_property
    def labels(self) -> list[str]:
        return [label(text) for text in self.texts]

    @cached_property
    def names(self) -> list[str]:
        """Labels told apart as --token takes them: it, it#2, it#3."""
        seen: Counter[str] = Counter()
        names = []
        for label in self.labels:
            seen[label] += 1
            names.append(label if seen[label] == 1 else f"{label}#{seen[label]}")
        return names

    def _text(self, cell: range) -> str:
        start, end = self.span(cell)
        return self.surfaces[cell[0]] if len(cell) == 1 or start == end else self.text[start:end]

    def span(self, cell: range) -> tuple[int, int]:
        return self.spans[cell[0]][0], self.spans[cell[-1]][1]

    def surface(self, id: int) -> str:
        """Any token of the vocabulary, as written."""
        return surface(self.loaded.tokenizer, id)

    def name(self, id: int) -> str:
        """The same for a table."""
        return label(self.surface(id))

    def watch(self, *observers: Observer) -> list[Observer]:
        """Observers that are to see cells, not tokens."""
        return list(observers) if len(self.cells) == len(self.ids) else [InWords(self.cells, *observers)]

    def needs(self, observers: Sequence[Observer]) -> int:
        """Bytes that a pass with these observers takes above the loaded model."""
        return estimate(self.model.config, len(self.ids), observers, self.model.dtype.itemsize)

    def run(self, observers: Sequence[Observer]) -> Tensor:
        """One pass; the stream behind the last block (n, C). What was generated goes through the cache token by
        token, as it was decoded."""
        import torch

        from transformer.generate import CHUNK, new_cache

        tap, ids = Recorder(*observers), torch.tensor([self.ids], device=self.model.device)
        with torch.inference_mode():
            if self.prompt is None:
                return self.model.hidden(ids, tap=tap)[0]
            cache = new_cache(self.model, capacity=len(self.ids))
            cache.horizons[0] = self.horizon
            given, written = ids[:, : self.prompt].split(CHUNK, dim=1), ids[:, self.prompt :].split(1, dim=1)
            return torch.cat([self.model.hidden(part, cache, tap)[0] for part in (*given, *written)])


def read(loaded: Loaded, text: str, by_words: bool) -> Subject:
    """Encodes a text and checks that it fits."""
    size, context, longest = len(text.encode()), loaded.model.config.context, loaded.tokenizer.longest
    if size > context * longest:
        raise InputError(f"the text has at least {-(-size // longest)} tokens, the context of {loaded.name} {context}")
    ids, spans = loaded.tokenizer.encode(text)
    if not ids:
        raise InputError("the text has no tokens: there is nothing to explain")
    if len(ids) > context:
        raise InputError(f"the text has {len(ids)} tokens, the context of {loaded.name} {context}")
    return Subject(loaded, text, ids, spans, cells(text, spans, by_words))


def cells(text: str, spans: list[tuple[int, int]], by_words: bool) -> list[range]:
    return words(text, spans) if by_words else [range(i, i + 1) for i in range(len(spans))]


def label(text: str) -> str:
    """A token for a table: without its leading space, but never invisible."""
    shown = text.removeprefix(" ") or text
    if shown.isspace():
        shown = shown.replace(" ", "␣")
    shown = safe(shown.translate(VISIBLE))
    if unicodedata.category(shown[0])[0] == "M":
        return "◌" + shown  # a mark needs something to stand on
    return "".join(f"⟨U+{ord(c):04X}⟩" for c in shown) if not cell_len(shown) or shown.isspace() else shown
