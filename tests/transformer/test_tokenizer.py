from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers

from tests.tiny import tiny_tokenizer
from transformer.errors import InputError
from transformer.tokenizer import TextStream, Tokenizer

TEXTS = ["Hello, fox!", "我吃了一个苹果", "👩‍👩‍👧 and 🙂", "naïve Größe", "  two  spaces ", "\n\n\t", "a\u0301"]


def byte_fallback() -> tokenizers.Tokenizer:
    """A SentencePiece-like tokenizer: ▁ for a space, unknown characters as their bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "▁ab"]
    tokenizer = tokenizers.Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


KINDS = {"byte level": Tokenizer(tiny_tokenizer()), "byte fallback": Tokenizer(byte_fallback())}


def streamed(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> str:
    stream = TextStream(tokenizer, prompt)
    return "".join(stream.feed(i) for i in ids) + stream.flush()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_the_stream_equals_the_whole_decode(kind: str, data: st.DataObject) -> None:
    tokenizer = KINDS[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.size + 5), max_size=90))
    assert streamed(tokenizer, [], ids) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_no_character_is_split(kind: str, text: str) -> None:
    tokenizer = KINDS[kind]
    stream = TextStream(tokenizer, [])
    pieces = [stream.feed(i) for i in tokenizer.encode(text).ids] + [stream.flush()]
    assert "".join(pieces) == tokenizer.decode(tokenizer.encode(text).ids)
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_first_word_keeps_its_space_behind_a_prompt() -> None:
    tokenizer = KINDS["byte fallback"]
    word = tokenizer.id("▁ab")
    assert word is not None
    assert streamed(tokenizer, [word], [word]) == " ab" and streamed(tokenizer, [], [word]) == "ab"


def test_ids_without_a_token_decode_to_nothing() -> None:
    tokenizer = KINDS["byte level"]
    ids = tokenizer.encode("fox").ids
    assert tokenizer.decode([*ids, tokenizer.size, 10**6]) == "fox"


def test_spans_are_characters_of_the_text() -> None:
    text = "fox 我吃"
    encoded = KINDS["byte level"].encode(text)
    assert encoded.spans[0][0] == 0 and encoded.spans[-1][1] == len(text)
    assert {span for span in encoded.spans if span[0] >= 4} == {(4, 5), (5, 6)}, "pieces of a character share its span"


def test_bos_is_added_once_and_only_where_asked_for() -> None:
    plain, asked = Tokenizer(tiny_tokenizer()), Tokenizer(tiny_tokenizer(), bos=0)
    ids = plain.encode("fox").ids
    assert 0 not in ids
    assert asked.encode("fox").ids == [0, *ids] and asked.encode("fox").spans[0] == (0, 0)
    assert asked.encode("<|endoftext|>fox").ids == [0, *ids]
    assert asked.encode_template("fox") == ids


def test_special_text_is_plain_where_it_must_be() -> None:
    tokenizer = KINDS["byte level"]
    assert len(tokenizer.encode("<|im_end|>").ids) == 1
    plain = tokenizer.encode_plain("<|im_end|>")
    assert len(plain) > 1 and tokenizer.decode(plain) == "<|im_end|>"
    assert len(tokenizer.encode("<|im_end|>").ids) == 1, "and only there"


def test_padding_and_truncation_of_a_file_are_not_obeyed() -> None:
    backend = tiny_tokenizer()
    backend.enable_padding(length=50)
    backend.enable_truncation(2)
    assert Tokenizer(backend).encode("the fox said").ids == KINDS["byte level"].encode("the fox said").ids


def test_a_panicking_tokenizer_is_an_input_error(capfd: pytest.CaptureFixture[str]) -> None:
    for text in ("{}", "[]", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "q"]]}}'):
        with pytest.raises(InputError, match=r"t\.json: not a tokenizer"):
            Tokenizer.from_json(text, "t.json")
    assert capfd.readouterr().err == ""
