from __future__ import annotations

import pytest

from transformer.schedule import Budget
from weights.session import affordable, due


@pytest.mark.parametrize(("minutes", "times"), [(3, 10), (30, 15), (60, 30), (600, 40)])
def test_a_run_by_the_clock_is_evaluated_every_two_minutes_or_so(minutes: int, times: int) -> None:
    budget, steps = Budget(seconds=60.0 * minutes), 1000
    found = [due(budget, step, (step - 1) / steps, step / steps) for step in range(1, steps + 1)]
    assert due(budget, 0) and sum(found) == times


def test_a_run_by_steps_is_evaluated_forty_times_at_most() -> None:
    assert [step for step in range(61) if due(Budget(steps=60), step)] == [0, 20, 40, 60]
    assert sum(due(Budget(steps=4000), step) for step in range(4001)) == 41


def test_evaluations_of_a_large_model_do_not_eat_up_its_time() -> None:
    clock, spent, read = Budget(seconds=3600.0), 14.0, 1  # as long as the first one took
    for minute in range(2, 60, 2):
        if affordable(clock, spent, 60.0 * minute):
            spent, read = spent + 14, read + 1
    assert 10 <= read <= 13  # about every five minutes
    assert affordable(Budget(steps=100), 1e9, 0.0)  # where steps are counted, equal runs stay equal
