"""A decoder in another vocabulary begins with what it knew of the text that a token stands for."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from tests.tiny import SPECIALS, tiny_config, tiny_model, tiny_tokenizer
from transformer.respell import respell, spellings
from transformer.tokenizer import Tokenizer


def of_words(*pieces: str) -> Tokenizer:
    """In another alphabet: a space is written ▁, and a first one is not read back."""
    backend = Backend(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Metaspace()
    return Tokenizer(backend)


def test_tokens_are_spelt_by_what_they_stand_for() -> None:
    old, new = Tokenizer(tiny_tokenizer(280)), Tokenizer(tiny_tokenizer(320))
    spelt = spellings(old, new)
    assert len(spelt) == new.size > old.size
    for id, ids in enumerate(spelt):
        if id in new.specials.values():
            assert ids == [old.id(SPECIALS[id])]
        elif ids:
            assert old.decode(ids) == new.decode([id])
    assert max(map(len, spelt)) > 1  # they do differ


def test_a_space_is_known_in_any_alphabet() -> None:
    old, new = Tokenizer(tiny_tokenizer()), of_words("<unk>", "a", "fox", "▁fox")
    words = spellings(old, new)
    assert words[2:] == [old.encode_plain("fox"), old.encode_plain(" fox")]


def test_half_a_character_is_spelt_by_nothing() -> None:
    old, new = of_words("<unk>", "a", "b"), Tokenizer(tiny_tokenizer())
    half = new.encode_plain("ß")[0]
    assert new.decode([half]) != "ß" and spellings(old, new)[half] == []


@pytest.mark.parametrize("changes", [{"tied": True}, {"head_bias": True}, {"embed_width": 16, "tied": True}], ids=str)
def test_the_same_words_by_other_numbers_are_the_same_to_it(changes: dict[str, object]) -> None:
    model = tiny_model(tiny_config(**changes)).double()
    order = torch.randperm(320, generator=torch.Generator().manual_seed(1))  # the new id -> the old one
    new = respell(model, [[int(id)] for id in order], 320).double()
    ids = torch.arange(60).view(2, 30) * 7 % 320
    torch.testing.assert_close(new(ids), model(order[ids])[..., order])


def test_a_token_is_the_mean_of_its_spelling_or_of_all() -> None:
    model = tiny_model(tiny_config(head_bias=True))
    new = respell(model, [[5], [3, 4], []], vocab_size=8)
    assert new.config.vocab_size == 8
    for name in ("embed.weight", "head.weight", "head.bias"):
        old, rows = model.get_parameter(name), new.get_parameter(name)
        torch.testing.assert_close(rows[:3], torch.stack([old[5], (old[3] + old[4]) / 2, old.mean(0)]))
        assert (rows[3:] == rows[2]).all()  # no token has these numbers
