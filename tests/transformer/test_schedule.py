from __future__ import annotations

import pytest

from transformer.errors import InputError
from transformer.schedule import Budget, Place, Recipe, lr_factor


def factor(step: int, **recipe: object) -> float:
    return lr_factor(Recipe(**recipe), Budget(steps=1000), Place(step=step))  # type: ignore[arg-type]


def test_wsd_warms_up_stays_and_comes_down() -> None:
    course = [factor(step, warmup=9, decay=0.5, floor=0.1) for step in (0, 4, 9, 300, 500, 750, 1000)]
    assert course == pytest.approx([0.1, 0.5, 1, 1, 1, 0.55, 0.1])


def test_cosine() -> None:
    course = [factor(step, warmup=0, schedule="cosine", floor=0.0) for step in (0, 500, 1000)]
    assert course == pytest.approx([1, 0.5, 0])


def test_no_decay_stays_up() -> None:
    assert factor(1000, warmup=0, decay=0.0) == 1


def test_a_short_run_warms_up_in_a_tenth_of_it() -> None:
    assert lr_factor(Recipe(warmup=40), Budget(steps=50), Place(step=5)) == 1


def test_time_drives_the_schedule_where_time_is_the_budget() -> None:
    budget = Budget(seconds=60)
    assert budget.progress(Place(step=10**6, seconds=30)) == 0.5
    assert lr_factor(Recipe(decay=0.5, floor=0.0), budget, Place(step=100, seconds=45)) == pytest.approx(0.5)


def test_an_empty_budget_is_spent() -> None:
    assert Budget(steps=0).progress(Place()) == Budget(seconds=0).progress(Place()) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": -1.0}, "lr must be between 0 and 10, got -1"),
        ({"batch": 0}, "batch must be between 1 and"),
        ({"dropout": 1.0}, "dropout must be between 0 and 0.99"),
        ({"decay": 2.0}, "decay must be between 0 and 1"),
        ({"optimizer": "sgd"}, "optimizer must be muon or adamw, got 'sgd'"),
        ({"schedule": "up"}, "schedule must be wsd or cosine, got 'up'"),
    ],
)
def test_impossible_recipes_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe(**wrong)  # type: ignore[arg-type]
