"""When did it form? A score followed over the checkpoints of a training run."""

from __future__ import annotations

from collections.abc import Sequence

from transformer.explain.roles import CLEAR


def formed(steps: Sequence[int], scores: Sequence[float]) -> int | None:
    """The first step from which on the score stays clear; None if it does not end up so."""
    since = None
    for step, score in zip(steps, scores, strict=True):
        if not score >= CLEAR:
            since = None
        elif since is None:
            since = step
    return since
