"""What teachers say of a sample, as it is kept: a byte for each token of the vocabulary, at each place.

A byte counts steps of log-probability below certainty, so that all of a prediction is there, the unlikely as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

STEP = 5 / 64  # nats: 255 of them reach down to one in half a billion


class Lessons(Protocol):
    """By where a sample begins: (T, V) bytes. A dict is one."""

    def __contains__(self, start: object, /) -> bool: ...
    def __getitem__(self, start: int, /) -> Tensor: ...
    def __setitem__(self, start: int, lesson: Tensor, /) -> None: ...


def noted(answers: Iterable[tuple[Tensor, int]]) -> Tensor:
    """What teachers predict on average, as bytes (N, V); of each, its logits (N, V) and its number of voices."""
    total, voices = torch.zeros(()), 0
    for logits, count in answers:
        total, voices = total + count * logits.softmax(-1, dtype=torch.float32), voices + count
    return (total / voices).log_().mul_(-1 / STEP).round_().clamp_(max=255).to(torch.uint8)


def recalled(lesson: Tensor) -> Tensor:
    """Bytes (N, V) -> logits (N, V)"""
    return lesson.float().mul_(-STEP)
