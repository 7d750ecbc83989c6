from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import tiny_tokenizer
from transformer.completion import Completion
from transformer.generate import Token
from transformer.tokenizer import Tokenizer

TOKENIZER = Tokenizer(tiny_tokenizer())
STOPS = st.lists(st.text("abox ", min_size=1, max_size=5), max_size=3)


def run(text: str, stops: list[str], eos: bool = False) -> tuple[Completion, list[str]]:
    completion = Completion(TOKENIZER, [], frozenset([2]), stops)
    pieces = []
    for id in [*TOKENIZER.encode(text).ids, *([2] if eos else [])]:
        pieces.append(completion.feed(Token(id)))
        if completion.finish:
            break
    return completion, [*pieces, completion.end()]


@settings(max_examples=500, deadline=None)
@given(st.text("abox ", max_size=40), STOPS, st.booleans())
def test_the_text_ends_before_the_stop_string_that_is_complete_first(text: str, stops: list[str], eos: bool) -> None:
    completion, pieces = run(text, stops, eos)
    found = [(text.index(stop) + len(stop), text.index(stop)) for stop in stops if stop in text]
    wanted = text[: min(found)[1]] if found else text
    assert "".join(pieces) == completion.text == wanted
    assert completion.finish == ("stop" if found else "eos" if eos else "length")


@given(st.text("abox ", max_size=40), STOPS)
def test_no_piece_ever_leaks_the_beginning_of_a_stop(text: str, stops: list[str]) -> None:
    _, pieces = run(text, stops)
    given_out = ""
    for piece in pieces:
        given_out += piece
        assert not any(stop in given_out for stop in stops)


def test_a_stop_string_over_several_tokens_and_an_emoji() -> None:
    completion, pieces = run("fox 🙂 water END more", ["END"])
    assert completion.text == "fox 🙂 water " and completion.finish == "stop"
    assert "🙂" in "".join(pieces) and not any("E" in piece for piece in pieces)


def test_eos_is_not_among_the_tokens() -> None:
    completion, _ = run("fox", [], eos=True)
    assert [token.id for token in completion.tokens] == TOKENIZER.encode("fox").ids and completion.finish == "eos"
