"""The tokenizer in the metadata: the same tokens as the one it was made from, the same rules around them."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Any

import pytest
import tokenizers

from tests.tiny import SPECIALS, TEXT, tiny_tokenizer
from tests.weights.gguf.models import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, byte_level_metadata
from transformer.errors import InputError
from transformer.tokenizer import Tokenizer
from weights.gguf.tokenizer import CUTS, Vocabulary

PROMPTS = [
    "",
    " ",
    "a",
    "The fox",
    "  two  spaces\n\n\tand more ",
    "it's we'll 12345",
    TEXT,
    "naïve 🙂 日本",
    "\x00\x7f",
]


def tokenizer_of(metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_json(json.dumps(Vocabulary(metadata, "x.gguf").json()), "x.gguf")


def test_byte_level_tokens_are_those_of_the_original() -> None:
    original, found = tiny_tokenizer(), tokenizer_of(byte_level_metadata())
    for prompt in [*PROMPTS, f"{SPECIALS[1]}user\nHi{SPECIALS[2]}"]:
        assert found.encode(prompt).ids == original.encode(prompt).ids
        assert found.decode(found.encode(prompt).ids) == original.decode(original.encode(prompt).ids)


def pieces(kind: str, text: str) -> list[str]:
    """How a kind cuts a text, told by the offsets."""
    backend = tokenizers.Tokenizer.from_str(
        json.dumps(Vocabulary({**byte_level_metadata(), "tokenizer.ggml.pre": kind}, "x").json())
    )
    return [text[start:stop] for _, (start, stop) in backend.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("gpt-2", "It's 2024, ok\n\n  x", ["It", "'s", " 2024", ",", " ok", "\n\n ", " x"]),
        ("smollm", "in 2024", ["in", " ", "2", "0", "2", "4"]),
        ("llama-bpe", "IT'S 12345\n\n x", ["IT", "'S", " ", "123", "45", "\n\n", " x"]),
        ("llama-bpe", "a.b()\n", ["a", ".b", "()\n"]),
        ("qwen2", "in 2024!\n", ["in", " ", "2", "0", "2", "4", "!\n"]),
        ("tekken", "HTTPServer 12/\n", ["HTTPServer", " ", "1", "2", "/\n"]),
        ("gpt-4o", "camelCase it's 1234", ["camel", "Case", " it's", " ", "123", "4"]),
        ("deepseek-v3", "x1234你好", ["x", "123", "4", "你好"]),
        ("deepseek-coder", "ab 12\n", ["ab", " ", "1", "2", "\n"]),
        ("default", "a, 1234", ["a", ",", " ", "123", "4"]),
    ],
)
def test_each_kind_cuts_in_its_own_way(kind: str, text: str, expected: list[str]) -> None:
    assert pieces(kind, text) == expected


@pytest.mark.parametrize("kind", CUTS)
def test_no_kind_loses_text(kind: str) -> None:
    tokenizer = tokenizer_of(
        {**byte_level_metadata(), "tokenizer.ggml.pre": kind, "tokenizer.ggml.add_bos_token": False}
    )
    for prompt in PROMPTS:
        assert tokenizer.decode(tokenizer.encode(prompt).ids) == prompt


def scored_metadata(**own: Any) -> dict[str, Any]:
    """A vocabulary as SentencePiece makes it: pieces of random words, scored by rank, bytes for all the rest."""
    chance = random.Random(5)
    letters = "abcde▁"
    longer = {"".join(chance.choice(letters) for _ in range(chance.randint(2, 6))) for _ in range(150)}
    longer |= {piece[:i] for piece in longer for i in range(2, len(piece))}
    ranked = sorted(longer)
    chance.shuffle(ranked)
    specials = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    tokens = [*specials, *bytes_, *ranked, *letters, "<turn>"]
    scores = [0.0] * 259 + [-float(i) for i in range(len(ranked) + len(letters))] + [-1000.0]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 260) + [USER_DEFINED]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{key}": value for key, value in own.items()},
    }


def merged_by_score(metadata: dict[str, Any], text: str) -> list[int]:
    """SentencePiece's rule, word for word: join the neighbours whose piece has the highest score, leftmost first."""
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    score = dict(zip(tokens, scores, strict=True))
    symbols = list(text.replace(" ", "▁"))
    while True:
        joints = [(score.get(a + b, -math.inf), -i) for i, (a, b) in enumerate(itertools.pairwise(symbols))]
        if not joints or max(joints)[0] == -math.inf:
            break
        at = -max(joints)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids = []
    for symbol in symbols:
        ids += [tokens.index(symbol)] if symbol in score else [3 + byte for byte in symbol.encode()]
    return ids


@pytest.mark.parametrize("spaced", [True, False])
def test_scored_tokens_follow_the_scores(spaced: bool) -> None:
    metadata = scored_metadata(add_space_prefix=spaced, add_bos_token=False)
    tokenizer = tokenizer_of(metadata)
    chance = random.Random(0)
    for _ in range(300):
        text = "".join(chance.choice("aabbccdde  xé🙂") for _ in range(chance.randint(1, 25)))
        expected = merged_by_score(metadata, (" " if spaced else "") + text)
        assert tokenizer.encode(text).ids == expected, text
        assert tokenizer.decode(expected) == text


def test_text_behind_a_special_token_gets_its_space_too() -> None:
    metadata = scored_metadata()
    tokenizer, turn = tokenizer_of(metadata), len(metadata["tokenizer.ggml.tokens"]) - 1
    expected = [1, *merged_by_score(metadata, " ab"), turn, *merged_by_score(metadata, " cd")]
    assert tokenizer.encode("ab<turn>cd").ids == expected


@pytest.mark.parametrize(
    ("own", "front", "back"),
    [({}, [1], []), ({"add_bos_token": False}, [], []), ({"add_eos_token": True}, [1], [2])],
)
def test_a_scored_tokenizer_frames_unless_told_otherwise(
    own: dict[str, Any], front: list[int], back: list[int]
) -> None:
    ids = tokenizer_of(scored_metadata(**own)).encode("ab").ids
    assert ids[: len(front)] == front and ids[len(ids) - len(back) :] == back
    assert (1 in ids, 2 in ids) == (bool(front), bool(back))


def test_byte_level_frames_by_kind_and_by_flag() -> None:
    plain = byte_level_metadata()
    for kind, flag, expected in [("gpt-2", None, False), ("llama-bpe", None, True), ("tekken", None, True),
                                 ("llama-bpe", False, False), ("gpt-2", True, True)]:  # fmt: skip
        own = {} if flag is None else {"tokenizer.ggml.add_bos_token": flag}
        ids = tokenizer_of({**plain, "tokenizer.ggml.pre": kind, **own}).encode("fox").ids
        assert (ids[0] == 0) is expected, kind


def test_control_tokens_are_special_and_user_defined_ones_are_text() -> None:
    tokenizer = tokenizer_of(scored_metadata())
    assert tokenizer.specials == {"<s>": 1, "</s>": 2}
    assert tokenizer.decode(tokenizer.encode("ab<turn>").ids) == "ab<turn>"
    assert 1 not in tokenizer.encode_plain("<s>")


def test_phi3_swallows_the_space_behind_its_markers() -> None:
    metadata = {**scored_metadata(), "general.architecture": "phi3"}
    tokenizer = tokenizer_of(metadata)
    assert tokenizer.encode("</s> ab").ids == tokenizer.encode("</s>ab").ids
    assert tokenizer.encode("<s> ab").ids != tokenizer.encode("<s>ab").ids


def test_whatever_ends_an_answer_is_an_eos() -> None:
    metadata = byte_level_metadata()
    assert Vocabulary(metadata, "x").eos == [0, 2]  # <|endoftext|> and <|im_end|>, though the file names only the last
    metadata["tokenizer.ggml.token_type"][0] = NORMAL
    assert Vocabulary(metadata, "x").eos == [2]
    metadata["tokenizer.ggml.eot_token_id"] = 1
    assert Vocabulary(metadata, "x").eos == [1, 2]
    del metadata["tokenizer.ggml.eos_token_id"], metadata["tokenizer.ggml.eot_token_id"]
    metadata["tokenizer.ggml.token_type"] = [NORMAL] * 320
    assert Vocabulary(metadata, "x").eos == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": "bert"}, "tokenizer 'bert' is not supported"),
        ({"model": None}, "model is missing"),
        ({"pre": "nobody"}, "pre-tokenizer 'nobody' is not supported"),
        ({"tokens": None}, "tokens is missing"),
        ({"tokens": [1, 2]}, "tokens must hold str values only"),
        ({"tokens": ["a", "b", "a"], "token_type": [1, 1, 1]}, "the token 'a' stands twice among 3"),
        ({"token_type": [1]}, "1 token_type for 320 tokens"),
        ({"token_type": "x"}, "token_type must be a list"),
        ({"merges": None}, "merges is missing"),
        ({"merges": ["a b c"]}, "not a tokenizer"),
        ({"merges": ["ab"]}, "not a tokenizer"),
        ({"merges": ["nobody here"]}, "not a tokenizer"),
        ({"eos_token_id": 320}, "eos_token_id is 320, there are 320 tokens"),
        ({"bos_token_id": "x"}, "bos_token_id must be a whole number"),
    ],
)
def test_a_wrong_vocabulary_is_named(changes: dict[str, Any], complaint: str) -> None:
    metadata = {**byte_level_metadata(), **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}
    with pytest.raises(InputError) as error:
        tokenizer = tokenizer_of({"tokenizer.ggml.add_bos_token": True, **metadata})
        assert tokenizer.encode("a") and Vocabulary(metadata, "x.gguf").eos
    assert complaint in str(error.value)


@pytest.mark.parametrize(("scores", "complaint"), [([], "0 scores for"), ([math.nan], "score is not a number")])
def test_wrong_scores_are_named(scores: list[float], complaint: str) -> None:
    metadata = scored_metadata()
    count = len(metadata["tokenizer.ggml.tokens"])
    with pytest.raises(InputError, match=complaint):
        tokenizer_of({**metadata, "tokenizer.ggml.scores": scores * count})


def test_empty_tokens_get_a_name() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"][1] = ""
    assert tokenizer_of(metadata).piece(1) == "[EMPTY_1]"
