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
        found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:
            self.finish = "stop"
            return self._give(text[: min(found)])
        held = max((_overlap(text, stop) for stop in self.stops), default=0)
        given = self._give(text[: len(text) - held])
        self.held = text[len(text) - held :]
        return given

    def _give(self, text: str) -> str:
        """The last text before an end may complete a stop string, too."""
        found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:
            self.finish, text = "stop", text[: min(found)]
        self.held = ""
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """How many last characters of the text are the first of the stop string."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
