"""Several answers to "which tokens mattered to this one", and how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

DISAGREE = 0.5  # rank correlation below which two methods tell different stories


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The correlation of the ranks; None if there are fewer than three, or all of one side are equal."""
    if len(a) < 3 or len(set(a)) == 1 or len(set(b)) == 1:
        return None
    x, y = (_ranks(torch.tensor(values, dtype=torch.float64)) for values in (a, b))
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / (x.norm() * y.norm()))


def _ranks(values: Tensor) -> Tensor:
    """Places in order of size; equal ones share the mean of theirs."""
    below = (values[:, None] > values).sum(1)
    equal = (values[:, None] == values).sum(1)
    return below + (equal.double() - 1) / 2


def agreement(scores: dict[str, Sequence[float]]) -> dict[tuple[str, str], float | None]:
    """The rank correlation of every two methods, by size of effect: signs are left out."""
    sizes = {name: [abs(value) for value in values] for name, values in scores.items()}
    return {(a, b): spearman(sizes[a], sizes[b]) for a, b in combinations(sizes, 2)}
