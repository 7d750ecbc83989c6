from __future__ import annotations

import pytest

from cli.question import choose, find, heads, methods, span
from cli.subject import label
from transformer.errors import InputError


def test_layers_and_heads() -> None:
    assert choose("3", 6, "--layer") == [3]
    assert choose("0,2-4,mean,-1", 6, "--layer") == [0, 2, 3, 4, "mean", 5]
    assert choose("all", 3, "--head") == [0, 1, 2]
    assert choose("1,1,0-1", 3, "--head") == [1, 0]
    for wrong, message in (
        ("6", "there are 6, 0 to 5"),
        ("x", "expected a number"),
        ("4-2", "nothing"),
        ("", "expected"),
    ):
        with pytest.raises(InputError, match=message):
            choose(wrong, 6, "--layer")


def test_rows() -> None:
    assert span(None, 5, "--rows") == span("all", 5, "--rows") == range(5)
    assert span("1:3", 5, "--rows") == range(1, 3) and span("-2:", 5, "--rows") == range(3, 5)
    assert span("2", 5, "--rows") == range(2, 3) and span("-1", 5, "--rows") == range(4, 5)
    for wrong in ("5", "7:9", "a:b", "1:2:3", ""):
        with pytest.raises(InputError, match="--rows"):
            span(wrong, 5, "--rows")


def test_tokens() -> None:
    labels = ["The", "it", "7", "it", "C#2", "it"]
    assert find("it", labels) == 1 and find("it#2", labels) == 3 and find("it#3", labels) == 5
    assert find("4", labels) == 4 and find("-1", labels) == 5, "a number is an index"
    assert find("7#1", labels) == 2, "unless it is counted as a text"
    assert find("C#2", labels) == 4
    for wrong, message in (
        ("them", "not among the 6 tokens"),
        ("it#4", "3 times"),
        ("9", "there are 6"),
        ("it#0", "3"),
    ):
        with pytest.raises(InputError, match=message):
            find(wrong, labels)


def test_heads_to_ablate_and_methods() -> None:
    assert heads("0.1, 1.-1,0.1", 2, 4) == [(0, 1), (1, 3)]
    for wrong in ("1", "2.0", "0.4", "a.b", ""):
        with pytest.raises(InputError, match="--ablate"):
            heads(wrong, 2, 4)
    assert methods("raw,zeroing,raw") == ["raw", "zeroing"] and len(methods("all")) == 5
    with pytest.raises(InputError, match="--weights 'attention'"):
        methods("attention")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" cat", "cat"),
        ("cat", "cat"),
        (" ", "␣"),
        ("   ", "␣␣"),
        ("\n", "⏎"),
        (" \n", "⏎"),
        ("\t", "⇥"),
        ("\u00a0", "⟨U+00A0⟩"),
        ("\u200b", "⟨U+200B⟩"),
        ("\u200d", "⟨U+200D⟩"),
        ("\u0301", "◌\u0301"),
        ("\x1b[31m", "^[[31m"),
        ("\u202e", "⟨U+202E⟩"),
        ("[/b]", "[/b]"),
        ("⟨e5 9c⟩", "⟨e5 9c⟩"),
    ],
)
def test_a_label_is_never_invisible_and_never_acts(text: str, shown: str) -> None:
    assert label(text) == shown
