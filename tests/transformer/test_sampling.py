from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.errors import InputError
from transformer.sampling import Sampling

OPEN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0, 0.5])


def sampling(**changes: float) -> Sampling:
    return Sampling(**{**OPEN, **changes})  # type: ignore[arg-type]


def kept(logits: torch.Tensor = LOGITS, **changes: float) -> set[int]:
    return set(sampling(**changes).distribution(logits, [], []).nonzero().flatten().tolist())


def test_open_settings_give_the_softmax() -> None:
    torch.testing.assert_close(sampling().distribution(LOGITS, [], []), LOGITS.double().softmax(0))


def test_each_filter_keeps_what_it_says() -> None:
    assert kept(top_k=2) == {0, 1} and kept(top_k=99) == set(range(6))
    p = LOGITS.softmax(0)
    assert kept(top_p=float(p[0]) - 1e-6) == {0} and kept(top_p=float(p[0]) + 1e-6) == {0, 1}
    assert kept(top_p=0.0) == {0}
    assert kept(min_p=math.exp(-1.0) - 1e-6) == {0, 1} and kept(min_p=1.0) == {0}


def test_top_p_follows_top_k_and_temperature_comes_last() -> None:
    p = LOGITS[:2].softmax(0)
    assert kept(top_k=2, top_p=float(p[0]) + 1e-6) == {0, 1} and kept(top_k=2, top_p=float(p[0]) - 1e-6) == {0}
    assert kept(temperature=100.0, top_p=0.5) == kept(temperature=0.01, top_p=0.5)
    hot = sampling(temperature=2.0, top_k=2).distribution(LOGITS, [], [])
    torch.testing.assert_close(hot[:2], (LOGITS[:2].double() / 2).softmax(0))


def test_top_p_looks_beyond_the_first_candidates_when_it_must() -> None:
    flat = torch.zeros(2000)
    assert len(kept(flat, top_p=0.9)) == pytest.approx(1800, abs=2)


def test_penalties() -> None:
    base = LOGITS.double()
    divided = sampling(repetition_penalty=2.0)._penalised(base, [0], [4])
    assert divided.tolist() == [1.0, 1.0, 0.0, -1.0, -4.0, 0.5]
    said = sampling(presence_penalty=0.5, frequency_penalty=0.25)._penalised(base, [1], [0, 0, 2])
    assert said.tolist() == [1.0, 1.0, -0.75, -1.0, -2.0, 0.5], "the prompt does not count as said"


def test_temperature_zero_is_the_argmax_whatever_the_seed() -> None:
    for seed in range(5):
        random = torch.Generator().manual_seed(seed)
        assert Sampling(temperature=0).choose(LOGITS, [], [], random) == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([{}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2}, {"temperature": 0.5}]))
def test_draws_follow_the_distribution(seed: int, changes: dict[str, float]) -> None:
    chosen, random, n = sampling(**changes), torch.Generator().manual_seed(seed), 400
    counts = torch.bincount(torch.tensor([chosen.choose(LOGITS, [], [], random) for _ in range(n)]), minlength=6)
    wanted = chosen.distribution(LOGITS, [], [])
    assert (counts[wanted == 0] == 0).all()
    deviation = (counts / n - wanted).abs() / (wanted * (1 - wanted) / n + 1e-9).sqrt()
    assert deviation.max() < 6


def test_equal_generators_give_equal_ids() -> None:
    draws = [[Sampling().choose(LOGITS, [], [], r) for _ in range(20)] for r in map(_seeded, (3, 3, 4))]
    assert draws[0] == draws[1] != draws[2]


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -1.0), ("temperature", math.nan), ("top_p", 1.1), ("min_p", -0.1), ("top_k", -1)],
)
def test_impossible_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        sampling(**{name: value})
