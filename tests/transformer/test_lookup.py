"""Guessing from the context: right guesses where text repeats, and the same text whatever the guesses."""

from __future__ import annotations

import ctypes
from collections import Counter
from unittest import mock

import pytest
import torch

from tests.tiny import tiny_config, tiny_model
from transformer import generate as engine
from transformer.accelerate import accelerate
from transformer.config import Layer, Rope
from transformer.generate import Request, generate, new_cache
from transformer.lookup import Lookup
from transformer.model import Transformer
from transformer.sampling import Sampling

MODEL = tiny_model(tiny_config(context=4096))
REPEATING = [7, 8, 9, 10, 11] * 6 + [40, 41, 7, 8]
SETTINGS = {
    "greedy": Sampling(temperature=0),
    "greedy with penalties": Sampling(temperature=0, repetition_penalty=1.3, frequency_penalty=0.2),
    "sampled": Sampling(temperature=0.9, top_k=20),
    "hot": Sampling(temperature=2.0, top_k=0, top_p=1.0, min_p=0.0),
}


def test_what_followed_last_time_is_guessed() -> None:
    assert Lookup([1, 2, 3, 4, 5, 1, 2, 3], 2).guess() == [4, 5]
    assert Lookup([1, 2, 9, 1, 2, 8, 1, 2], 1).guess() == [8]  # the newer of two
    assert Lookup([1, 2, 3, 9, 9, 2, 3, 8, 1, 2, 3], 1).guess() == [9]  # the longer of two
    assert Lookup([5, 6, 5, 6], 8).guess() == [5, 6]  # as far as there is text


def test_without_a_repetition_nothing_is_guessed() -> None:
    for ids in ([], [1], [1, 2], [1, 2, 3, 4], [1, 2, 1]):
        assert Lookup(ids, 4).guess() == []
    assert Lookup([1, 2, 3, 1, 2, 3], 0).guess() == []


def text(model: Transformer, sampling: Sampling, lookup: int, seed: int = 0, limit: int = 40) -> tuple[list[int], int]:
    """The tokens written, and the passes it took."""
    request = Request(REPEATING, sampling, limit, seed=seed)
    with mock.patch.object(engine, "read", wraps=engine.read) as passes:
        tokens = [token.id for token in generate(model, new_cache(model), request, lookup=lookup)]
    return tokens, passes.call_count


@pytest.mark.parametrize("lookup", [1, 3, 10])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_text_is_the_same(name: str, lookup: int) -> None:
    for seed in range(6):
        plain, _ = text(MODEL, SETTINGS[name], 0, seed)
        assert text(MODEL, SETTINGS[name], lookup, seed)[0] == plain


def test_right_guesses_save_passes() -> None:
    """A decoder that can do nothing but go round in circles."""
    model = tiny_model(tiny_config(context=4096))
    model.blocks.apply(lambda module: [p.zero_() for p in module.parameters(recurse=False)] and None)
    model.embed.weight.copy_(torch.eye(320, 32))
    model.head.weight.copy_(torch.eye(320, 32).roll(1, 0))
    model.head.weight[0] = model.head.weight[12]
    tokens, passes = text(model, Sampling(temperature=0), 0, limit=60)
    again, fewer = text(model, Sampling(temperature=0), 8, limit=60)
    assert again == tokens and passes == 59 and fewer < 30


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_it_stops_where_it_must(limit: int) -> None:
    plain, _ = text(MODEL, SETTINGS["greedy"], 0, limit=30)
    assert text(MODEL, SETTINGS["greedy"], 12, limit=limit)[0] == plain[:limit]
    request = Request(REPEATING, SETTINGS["greedy"], 30, eos=frozenset([plain[5]]))
    tokens = [token.id for token in generate(MODEL, new_cache(MODEL), request, lookup=12)]
    assert tokens == plain[: plain.index(plain[5]) + 1]


def test_windows_are_cropped_as_well() -> None:
    layer = Layer(mlp_width=48, attention_scale=8**-0.5, rope=Rope(dim=8), window=6)
    model = tiny_model(tiny_config(context=4096, layers=(layer, tiny_config().layers[0])))
    for name in ("greedy", "sampled"):
        plain, _ = text(model, SETTINGS[name], 0, limit=60)
        assert text(model, SETTINGS[name], 5, limit=60)[0] == plain


def test_the_compiled_blocks_write_the_same(library: ctypes.CDLL) -> None:
    config = tiny_config(
        context=4096,
        head_dim=16,
        layers=(Layer(mlp_width=48, attention_scale=0.25, rope=Rope(dim=16)),) * 2,
    )
    plain, native = tiny_model(config), tiny_model(config)
    accelerate(native, library)
    assert native.native is not None
    for name in ("greedy", "sampled"):
        assert text(native, SETTINGS[name], 6)[0] == text(plain, SETTINGS[name], 0)[0]


def test_the_distribution_is_the_same() -> None:
    """Two tokens drawn many times: how often each pair comes, against the product of their probabilities."""
    sampling = Sampling(temperature=1.5, top_k=4, top_p=1.0, min_p=0.0)
    found: Counter[tuple[int, ...]] = Counter()
    draws = 600
    for seed in range(draws):
        found[tuple(text(MODEL, sampling, 4, seed, limit=2)[0])] += 1
    expected = {}
    with torch.inference_mode():
        first = sampling.distribution(MODEL(torch.tensor([REPEATING]))[0, -1], REPEATING, [])
        for a in first.nonzero().flatten().tolist():
            second = sampling.distribution(MODEL(torch.tensor([[*REPEATING, a]]))[0, -1], REPEATING, [a])
            for b in second.nonzero().flatten().tolist():
                expected[a, b] = float(first[a] * second[b]) * draws
    assert set(found) <= set(expected)
    square = sum((found[pair] - count) ** 2 / count for pair, count in expected.items())
    assert square < 2.5 * len(expected)  # the mean of such a sum is the number of pairs less one
