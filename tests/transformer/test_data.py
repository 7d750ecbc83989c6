from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data import IGNORED, Documents, Mixture, Span, Strand, Tokens, batch, shuffled
from transformer.errors import InputError


@given(st.integers(1, 2000), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_a_shuffle_is_a_permutation(count: int, key: int) -> None:
    assert sorted(shuffled(i, count, key) for i in range(count)) == list(range(count))


def test_shuffles_differ_by_key_and_look_random() -> None:
    one, other = ([shuffled(i, 500, key) for i in range(500)] for key in (1, 2))
    assert one != other
    together = sum(abs(a - b) == 1 for a, b in pairwise(one))
    assert together < 15  # neighbours stay neighbours in 1 of 250 cases


def starts(strand: Strand, numbers: range, *key: int) -> list[int]:
    return [next(strand.sample(i, *key)).start for i in numbers]


def test_every_sample_of_a_pass_comes_before_the_next_pass() -> None:
    strand = Strand([Span(0, 101)], 10)
    assert strand.samples == 10
    for turn in range(3):
        seen = starts(strand, range(10 * turn, 10 * turn + 10), 7)
        shift = seen[0] % 10
        ring = sorted((start - shift) % 101 for start in seen)
        assert len(set(seen)) == 10 and all((b - a) in (10, 11) for a, b in pairwise(ring))


def test_passes_cut_the_text_at_different_places() -> None:
    strand = Strand([Span(0, 1001)], 10)
    edges = [{start % 10 for start in starts(strand, range(100 * turn, 100 * turn + 50), 3)} for turn in range(3)]
    assert edges[0] == {0} and edges[1] != edges[0] and edges[2] != edges[1]


def test_samples_run_over_the_edges_of_spans_and_round_the_ring() -> None:
    strand = Strand([Span(5, 8), Span(20, 24), Span(9, 9)], 5)
    text = [5, 6, 7, 20, 21, 22, 23]
    for index in range(30):
        ids = [i for span in strand.sample(index, 1) for i in range(*span)]
        first = text.index(ids[0])
        assert ids == [text[(first + i) % 7] for i in range(6)]


def test_samples_begin_where_documents_do_if_that_is_near() -> None:
    begins = (0, 90, 94, 100, 130)  # the last document is longer than a sample
    text = torch.tensor([0 if place in begins else 1 for place in range(300)]).to(torch.uint16)
    strand = Strand([Span(90, 300), Span(0, 90)], 20, Documents(Tokens(text), 0))
    plain = Strand(strand.spans, 20)
    behind = Counter[int]()
    for index in range(45):
        cut, start = next(plain.sample(index, 5)).start, next(strand.sample(index, 5)).start
        begin = max(place for place in begins if place <= cut)
        behind[start - (begin if cut - begin < 20 else cut)] += 1
    assert behind.keys() == {0, 1} and min(behind.values()) > 15  # with or without the token that begins it


def test_weights_are_readings_an_epoch() -> None:
    mixture = Mixture([(Strand([Span(0, 41)], 4), 2.0), (Strand([Span(100, 141)], 4), 0.5)], seed=3)
    assert mixture.epoch == 25
    seen = Counter(next(mixture.sample(i)).start >= 100 for i in range(mixture.epoch * 4))
    assert seen == {False: 80, True: 20}
    half = {next(mixture.sample(i)).start for i in range(25)} | {next(mixture.sample(i)).start for i in range(25, 50)}
    assert len([start for start in half if start >= 100]) == 10  # a half in one epoch, the other half in the next


def test_epochs_that_are_alike_have_the_samples_of_the_first_in_another_order() -> None:
    text = torch.arange(200).remainder(9).to(torch.uint16)
    strands = [(Strand([Span(0, 91)], 4, Documents(Tokens(text), 0)), 2.0), (Strand([Span(100, 141)], 4), 0.5)]
    mixture = Mixture(strands, seed=3, alike=True)
    epochs = [[tuple(mixture.sample(i)) for i in range(49 * turn, 49 * turn + 49)] for turn in range(3)]
    assert Counter(epochs[0]) == Counter(epochs[1]) == Counter(epochs[2]) and epochs[0] != epochs[1]
    assert Counter(epochs[0].count(sample) for sample in set(epochs[0])) == {2: 22, 1: 5}


def test_the_order_is_a_function_of_seed_and_number() -> None:
    def order(seed: int) -> list[list[Span]]:
        mixture = Mixture([(Strand([Span(0, 500)], 4), 1.0)], seed)
        return [list(mixture.sample(i)) for i in (7, 3, 200)]

    assert order(1) == order(1) != order(2)


def test_too_little_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"4 \+ 1 tokens"):
        Mixture([(Strand([Span(0, 4)], 4), 1.0)], 0)


def test_targets_are_the_next_ids_and_only_what_is_learnt() -> None:
    learnt = torch.tensor([False, False, True, True, False, True])
    tokens = Tokens(torch.arange(6).to(torch.uint16), learnt)
    ids, targets, count, starts = batch(tokens, [[Span(0, 3)], [Span(3, 4), Span(4, 6)]])
    assert ids.tolist() == [[0, 1], [3, 4]]
    assert targets.tolist() == [[IGNORED, 2], [IGNORED, 5]] and count == 2 and starts == (0, 3)
