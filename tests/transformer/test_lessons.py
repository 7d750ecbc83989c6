"""What teachers said is kept nearly as they said it, and they are asked once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tiny import tiny_model
from transformer.data import Batch
from transformer.lessons import STEP, noted, recalled
from transformer.loss import Told, cross_entropy
from transformer.model import Transformer
from transformer.schedule import Recipe
from transformer.train import Objective


def random(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_a_prediction_is_kept_but_for_half_a_step() -> None:
    logits = random(20, 300)
    kept = noted([(logits, 1)])
    assert kept.dtype is torch.uint8 and kept.shape == logits.shape
    off = (recalled(kept) - logits.log_softmax(-1)).abs()
    assert float(off.max()) <= STEP / 2 + 1e-5 and float(off.mean()) > STEP / 8


def test_what_is_next_to_impossible_stays_so() -> None:
    logits = torch.tensor([[0.0, -60.0, -torch.inf]])
    assert recalled(noted([(logits, 1)])).softmax(-1)[0, 1:].max() < 1e-8


def test_teachers_are_heard_by_their_voices() -> None:
    one, other = random(5, 40), random(5, 40, seed=1)
    mean = (3 * one.softmax(-1) + other.softmax(-1)) / 4
    found = recalled(noted([(one, 3), (other, 1)])).softmax(-1)
    assert float((found / mean - 1).abs().max()) < STEP
    assert float((found / one.softmax(-1) - 1).abs().max()) > 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Transformer, list[int]]]:
    """The models that read something, in order, and what each of the rows began with."""
    found: list[tuple[Transformer, list[int]]] = []
    forward = Transformer.forward

    def noticed(self: Transformer, ids: Tensor, **more: Any) -> Tensor:
        found.append((self, ids[:, 0].tolist()))
        return forward(self, ids, **more)

    monkeypatch.setattr(Transformer, "forward", noticed)
    return found


def test_every_teacher_is_asked_once_of_each_sample(asked: list[tuple[Transformer, list[int]]]) -> None:
    student, one, other = (tiny_model() for _ in range(3))
    lessons: dict[int, Tensor] = {}
    objective = Objective(Recipe(), teachers=[one, other, one], lessons=lessons)
    ids = torch.arange(16).view(2, 8)
    first, again = (objective(student, Batch(ids, ids + 1, 16, starts), 0) for starts in ((3, 40), (40, 3)))
    assert asked == [(model, [0, 8]) for model in (one, other, student, student)] and lessons.keys() == {3, 40}
    told = Told(recalled(torch.cat([lessons[3], lessons[40]])), 3 / 4)
    expected = cross_entropy(student(ids).flatten(0, 1), (ids + 1).flatten(), told)
    torch.testing.assert_close(first, expected)
    assert not torch.isclose(first, again)  # by then the samples had changed places, and the lessons with them
    asked.clear()
    objective(student, Batch(ids, ids + 1, 16, (3, 9)), 0)
    assert asked == [(one, [8]), (other, [8]), (student, [0, 8])]  # the first row is known
    torch.testing.assert_close(lessons[9], lessons[40], rtol=0, atol=1)  # of a row by itself, but for the last bit
