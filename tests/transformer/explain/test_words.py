from __future__ import annotations

import pytest
import torch

from tests.tiny import tiny_tokenizer
from tests.transformer.explain.zoo import IDS, as_batch, zoo_model
from tests.transformer.test_recording import Everything
from transformer.explain.overview import Mean
from transformer.explain.surface import surface, text_of
from transformer.explain.words import InWords, words
from transformer.recording import Recorder
from transformer.tokenizer import Tokenizer


def merged(text: str) -> list[str]:
    """The words that single-character pieces are merged into."""
    groups = words(text, [(i, i + 1) for i in range(len(text))])
    assert [piece for group in groups for piece in group] == list(range(len(text)))
    return [text[group.start : group.stop] for group in groups]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat didn't.", ["The", " cat", " didn't", "."]),
        ("“it’s 3rd’", ["“", "it’s", " 3rd", "’"]),
        ("我吃了 apple。", ["我", "吃", "了", " apple", "。"]),
        ("e\u0301te\u0301 x", ["e\u0301te\u0301", " x"]),
        ("👩‍👩‍👧 👍🏽!", ["👩‍👩‍👧", " 👍🏽", "!"]),
        ("a🇩🇪🇫🇷 🇮", ["a", "🇩🇪", "🇫🇷", " 🇮"]),
        ("a  b\n\nc", ["a", "  b", "\n\nc"]),
        ("naïve snake_case", ["naïve", " snake", "_", "case"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert merged(text) == expected


def test_pieces_of_one_character_stay_together_and_specials_apart() -> None:
    assert words("苹果", [(0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 2)]) == [range(0, 1), range(1, 3), range(3, 6)]
    assert words("苹果 x", [(0, 2), (2, 4)]) == [range(0, 1), range(1, 2)]
    assert words("ab cd", [(0, 4), (4, 5)]) == [range(0, 2)], "a piece reaching into the next word joins them"
    assert words("", []) == []


@pytest.mark.parametrize("name", ["pre", "sandwich"])
def test_a_word_reads_with_its_last_piece_and_is_read_as_a_whole(name: str) -> None:
    model, n = zoo_model(name), len(IDS)
    groups = [range(0, 1), range(1, 4), range(4, 5), range(5, 8), range(8, 13)]
    everything, mean = Everything(model.config, n), Mean(model.config, len(groups))
    model.hidden(as_batch(), tap=Recorder(everything, InWords(groups, mean)))
    pieces = everything.weights.mean((0, 1))
    for word, group in enumerate(groups):
        expected = [float(pieces[group[-1], other.start : other.stop].sum()) for other in groups]
        assert mean.weights[word].tolist() == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(mean.weights.sum(1), torch.ones(len(groups)))


def test_words_can_be_asked_for_rows_and_layers() -> None:
    model = zoo_model("pre")
    groups = [range(0, 2), range(2, 6), range(6, 13)]
    mean = Mean(model.config, 3, range(1, 2))
    watch = InWords(groups, mean)
    assert watch.rows == [5] and watch.layers is None
    model.hidden(as_batch(), tap=Recorder(watch))
    assert mean.weights.shape == (1, 3) and float(mean.weights[0, 2]) == 0


def test_surfaces_of_byte_level_tokens() -> None:
    tokenizer = Tokenizer(tiny_tokenizer())
    text = "Once upon 我 🙂"
    encoded = tokenizer.encode(text)
    shown = [surface(tokenizer, id) for id in encoded.ids]
    assert not any("Ġ" in piece or "▁" in piece for piece in shown)
    assert shown[0].startswith("O")
    for id in range(tokenizer.size):
        piece = surface(tokenizer, id)
        assert piece and "\N{REPLACEMENT CHARACTER}" not in piece
    assert surface(tokenizer, tokenizer.specials["<|endoftext|>"]) == "<|endoftext|>"
    assert surface(tokenizer, 10_000) == "⟨10000⟩"


def test_lone_bytes() -> None:
    assert text_of("苹".encode()) == "苹"
    assert text_of(b"\xe5\x9c") == "⟨e5 9c⟩"
    assert text_of(b" a\xe5") == " a⟨e5⟩"
    assert text_of(b"\x9c b") == "⟨9c⟩ b"
