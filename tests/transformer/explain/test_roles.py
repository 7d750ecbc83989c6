from __future__ import annotations

import math

import pytest
import torch

from tests.transformer.explain.zoo import ZOO
from transformer.explain.development import formed
from transformer.explain.roles import PATTERNS, Roles, kind, repeated
from transformer.recording import Rows

NAMES = [pattern.name for pattern in PATTERNS]
CONFIG = ZOO["pre"]


def scored(ids: list[int], reads: dict[int, int], rows: range | None = None) -> Roles:
    """A head that reads one token in every row: itself, unless `reads` says which."""
    roles = Roles(CONFIG, ids, rows)
    weights = torch.zeros(CONFIG.heads, len(ids), len(ids))
    for i in range(len(ids)):
        weights[:, i, reads.get(i, i)] = 1
    for layer in range(2):
        everything = Rows(layer, torch.arange(len(ids)), 0, weights)
        roles.attention(everything.only(roles.rows))
    return roles


def score(roles: Roles, name: str) -> float:
    return float(roles.scores[NAMES.index(name), 0, 0])


def test_previous_duplicate_and_induction_are_told_apart() -> None:
    ids, rows = repeated(range(100), [], 6, seed=0)
    previous = scored(ids, {i: i - 1 for i in range(1, 12)}, rows)
    assert score(previous, "previous") == 1 and score(previous, "induction") == score(previous, "duplicate") == 0
    duplicate = scored(ids, {i: i - 6 for i in rows}, rows)
    assert score(duplicate, "duplicate") == 1 and score(duplicate, "induction") == score(duplicate, "previous") == 0
    induction = scored(ids, {i: i - 5 for i in rows}, rows)
    assert score(induction, "induction") == 1 and score(induction, "duplicate") == 0
    assert float(induction.chance[NAMES.index("induction")]) == pytest.approx(sum(1 / (i + 1) for i in rows) / 6)


def test_a_token_said_twice_in_a_row_does_not_make_reading_oneself_induction() -> None:
    roles = scored([7, 7, 7, 7], {})
    assert score(roles, "self") == 1
    assert score(roles, "induction") == 0


def test_nothing_repeated_is_no_score_not_zero() -> None:
    roles = scored([1, 2, 3, 4, 5], {})
    for name in ("induction", "duplicate"):
        assert math.isnan(score(roles, name)) and math.isnan(float(roles.chance[NAMES.index(name)]))
    assert score(roles, "self") == 1


def test_scores_are_over_the_rows_that_can_tell() -> None:
    roles = scored([1, 2, 3, 2, 9, 9], {3: 2, 5: 4})
    assert score(roles, "induction") == 1  # row 3 alone: 2 was followed by 3
    assert score(roles, "duplicate") == 0.5  # rows 3 and 5; only the latter reads its double


def test_the_first_row_has_no_choice_and_does_not_count() -> None:
    assert score(scored([1, 2, 3], {1: 0, 2: 0}), "sink") == 1
    assert score(scored([1, 2, 3], {}), "sink") == 0


def test_kinds() -> None:
    chance = [0.01] * len(PATTERNS)

    def named(**scores: float) -> str | None:
        number = kind([scores.get(name, 0.0) for name in NAMES], chance)
        return None if number is None else NAMES[number]

    assert named(sink=0.6, induction=0.35) == "induction"
    assert named(sink=0.6, induction=0.2) == "sink"
    assert named(previous=0.5, duplicate=0.4) == "previous"
    assert named(self=0.2) is None
    assert kind([math.nan, math.nan, 0.4, 0.0, 0.0, 0.0], [math.nan, math.nan, 0.5, 0.1, 0.1, 0.1]) is None
    assert kind([math.nan] * 6, [math.nan] * 6) is None


def test_repeated_tokens_are_different_seeded_and_behind_the_prefix() -> None:
    ids, rows = repeated(range(10, 90), [3], 20, seed=5)
    assert ids[0] == 3 and ids[1:21] == ids[21:] and len(set(ids[1:21])) == 20
    assert rows == range(21, 41)
    assert ids == repeated(range(10, 90), [3], 20, seed=5)[0] != repeated(range(10, 90), [3], 20, seed=6)[0]
    assert len(repeated(range(4), [], 20, seed=0)[0]) == 8


def test_formed_is_when_it_came_to_stay() -> None:
    steps = [1, 2, 4, 8, 16]
    assert formed(steps, [0.0, 0.1, 0.4, 0.5, 0.6]) == 4
    assert formed(steps, [0.4, 0.1, 0.1, 0.5, 0.6]) == 8
    assert formed(steps, [0.4, 0.5, 0.6, 0.5, 0.1]) is None
    assert formed(steps, [math.nan] * 5) is None
