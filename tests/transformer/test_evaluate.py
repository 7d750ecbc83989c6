from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from transformer.data import Span, Tokens
from transformer.evaluate import bits_per_byte, windows
from transformer.parallel import World


class Uniform(nn.Module):
    """Every id is equally likely, but the right one of `sure`, which it knows."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.scale = size, nn.Parameter(torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        assert not self.training
        return torch.zeros(*ids.shape, self.size) + self.scale


BYTES = torch.tensor([0, 1, 2, 4])


def measure(ids: list[int], spans: list[Span], learnt: list[bool] | None = None) -> float | None:
    tokens = Tokens(torch.tensor(ids), None if learnt is None else torch.tensor(learnt))
    return bits_per_byte(Uniform(4), tokens, spans, BYTES, lambda: False, World())


def test_bits_are_divided_by_the_bytes_the_tokens_stand_for() -> None:
    assert measure([0, 1, 2, 3], [Span(0, 4)]) == pytest.approx(3 * 2 / 7)  # 2 bits each, 1 + 2 + 4 bytes


def test_special_tokens_and_what_is_not_learnt_are_left_out() -> None:
    assert measure([0, 1, 0, 3], [Span(0, 4)]) == pytest.approx(2 * 2 / 5)
    assert measure([0, 1, 2, 3], [Span(0, 4)], [False, False, True, False]) == pytest.approx(2 / 2)


def test_spans_of_different_lengths_do_not_see_each_other_or_the_padding() -> None:
    ids = [0, 1, 2, 3, 0, 1]
    spans = [Span(0, 4), Span(4, 6)]
    assert measure(ids, spans) == pytest.approx((3 + 1) * 2 / 8)


def test_nothing_to_measure() -> None:
    assert measure([], []) is None
    assert measure([0, 0], [Span(0, 2)]) is None


def test_the_wish_to_stop_ends_it() -> None:
    tokens = Tokens(torch.tensor([0, 1, 2]))
    assert bits_per_byte(Uniform(4), tokens, [Span(0, 3)], BYTES, lambda: True, World()) is None


def test_windows_cover_every_target_once() -> None:
    found = windows([Span(0, 10), Span(10, 12), Span(12, 13)], 4)
    assert found == [Span(0, 5), Span(4, 9), Span(8, 10), Span(10, 12)]
    targets = [t for span in found for t in range(span.start + 1, span.stop)]
    assert sorted(targets) == [*range(1, 10), 11]


def test_a_model_that_knows_scores_less() -> None:
    class Knows(Uniform):
        def forward(self, ids: Tensor) -> Tensor:
            return nn.functional.one_hot((ids + 1) % 4, 4) * 5.0

    tokens = Tokens(torch.tensor([0, 1, 2, 3]))
    known = bits_per_byte(Knows(4), tokens, [Span(0, 4)], BYTES, lambda: False, World())
    assert known is not None and known == pytest.approx(3 * math.log2(1 + 3 * math.exp(-5)) / 7, rel=1e-4)
