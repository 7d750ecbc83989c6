from __future__ import annotations

import io
import os
import pty

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.terminal import console, safe

HOSTILE = ["\x1b[2J", "\x9b31m", "\x1b]0;title\x07", "a\rb", "\u202eevil", "\u2066x\u2069", "\u2028", "\x7f", "\x00"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_would_act_on_a_terminal_becomes_visible(text: str) -> None:
    shown = safe(f"a{text}z")
    assert shown != f"a{text}z" and shown.isprintable() and shown.startswith("a") and shown.endswith("z")


def test_the_forms_it_takes() -> None:
    assert safe("\x1b[0m\x7f\x85\u202e") == "^[[0m^?⟨U+0085⟩⟨U+202E⟩"


def test_ordinary_text_stays() -> None:
    text = "Größe\t我吃\n👩‍👩‍👧 e\u0301 [bold]x[/bold] \\n"
    assert safe(text) == text


@given(st.text())
def test_nothing_dangerous_survives_anywhere(text: str) -> None:
    for character in safe(text):
        code = ord(character)
        assert character in "\n\t" or (code >= 32 and not 127 <= code < 160)
        assert character not in "\u061c\u200e\u200f\u2028\u2029" and not 0x202A <= code <= 0x202E
        assert not 0x2066 <= code <= 0x2069


@given(st.text(), st.integers(0, 50))
def test_pieces_come_out_as_the_whole(text: str, at: int) -> None:
    assert safe(text[:at]) + safe(text[at:]) == safe(text)


def test_off_a_terminal_there_is_no_colour_and_the_width_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = io.StringIO()
    plain = console(out)
    plain.print("[bold]not markup[/bold] :smile:", style="red")
    assert plain.width == 100 and out.getvalue() == "[bold]not markup[/bold] :smile:\n"
    monkeypatch.setenv("COLUMNS", "61")
    assert console(io.StringIO()).width == 61


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("NO_COLOR", "")])
def test_colour_on_a_terminal_can_be_declined(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(variable, value)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        console(stream).print("red", style="red")
        stream.flush()
        assert (b"\x1b[" in os.read(ours, 100)) == (value == "")
    os.close(ours)
