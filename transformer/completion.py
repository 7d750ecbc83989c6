"""One completion on its way from ids to text: decoding, stop strings, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from transformer.generate import Token
from transformer.tokenizer import TextStream, Tokenizer

Finish = Literal["eos", "stop", "length"]


class Completion:
    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], eos: frozenset[int], stops: Sequence[str] = ()):
        self.stream = TextStream(tokenizer, prompt)
        self.eos, self.stops = eos, [stop for stop in stops if stop]
        self.tokens: list[Token] = []  # without the EOS
        self.text = ""  # given out so far
        self.held = ""  # decoded, but perhaps the beginning of a stop string
        self.finish: Finish | None = None

    def feed(self, token: Token) -> str:
        """The text to give out after this token."""
        if token.id in self.eos:
            self.finish = "eos"
            return self._give(self.held + self.stream.flush())
        self.tokens.append(token)
        return self._release(self.held + self.stream.feed(token.id))

    def end(self) -> str:
        """No token follows: the rest of the text."""
        if self.finish is not None:
            return ""
        self.finish = "length"
        return self._give(self.held + self.stream.flush())

    def _release(self, text: str) -> str:
        """Gives out all but what may be the beginning of a stop string."""
        held = max((_overlap(text, stop) for stop in self.stops), default=0)
        if self._cut(text) is None and held:
            given = self._give(text[:-held])
            self.held = text[-held:]
            return given
        return self._give(text)

    def _give(self, text: str) -> str:
        cut = self._cut(text)
        if cut is not None:
            self.finish, text = "stop", text[:cut]
        self.held = ""
        self.text += text
        return text

    def _cut(self, text: str) -> int | None:
        """Where the stop string begins that is complete first."""
        found = [(at + len(stop), at) for stop in self.stops if (at := text.find(stop)) >= 0]
        return min(found)[1] if found else None


def _overlap(text: str, stop: str) -> int:
    """How many last characters of the text are the first of the stop string."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
