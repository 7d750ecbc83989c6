from __future__ import annotations

import pytest

from transformer.schedule import Budget
from weights.session import due


@pytest.mark.parametrize(("minutes", "times"), [(3, 10), (30, 15), (60, 30), (600, 40)])
def test_a_run_by_the_clock_is_evaluated_every_two_minutes_or_so(minutes: int, times: int) -> None:
    budget, steps = Budget(seconds=60.0 * minutes), 1000
    found = [due(budget, step, (step - 1) / steps, step / steps) for step in range(1, steps + 1)]
    assert due(budget, 0) and sum(found) == times


def test_a_run_by_steps_is_evaluated_forty_times_at_most() -> None:
    assert [step for step in range(61) if due(Budget(steps=60), step)] == [0, 20, 40, 60]
    assert sum(due(Budget(steps=4000), step) for step in range(4001)) == 41
