from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cli.views.roles import SAID_TWICE, _ordinary


def subject(*learned: str) -> Any:
    pieces = ["<s>", "a", "é", "<0x0A>", *learned]
    tokenizer = SimpleNamespace(specials={"<s>": 0}, size=len(pieces), piece=lambda i: pieces[i])
    config = SimpleNamespace(vocab_size=len(pieces))
    return SimpleNamespace(loaded=SimpleNamespace(tokenizer=tokenizer), model=SimpleNamespace(config=config))


def test_random_tokens_are_drawn_from_those_that_text_was_made_of() -> None:
    words = [f"w{i}" for i in range(SAID_TWICE)]
    assert _ordinary(subject(*words)) == list(range(4, 4 + SAID_TWICE))


def test_a_vocabulary_of_characters_gives_what_it_has() -> None:
    assert _ordinary(subject("word")) == [1, 2, 3, 4]
