"""ids -> batches -> steps: training as a generator, so that whoever runs it saves, evaluates and stops in between."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer

from transformer.data import IGNORED, Batch, Mixture, Span, Tokens, batch, mixed
from transformer.dropout import Dropout
from transformer.errors import EnvironmentFailed
from transformer.optim import Recipe, lr_factor, set_lr
from transformer.tap import FUSED


@dataclass(frozen=True)
class Budget:
    """How long to train: a number of steps, or of seconds."""

    steps: int | None = None
    seconds: float | None = None

    def progress(self, at: Place) -> float:
        if self.steps is not None:
            return at.step / self.steps if self.steps else 1.0
        assert self.seconds is not None
        return at.seconds / self.seconds if self.seconds else 1.0


@dataclass
class Place:
    """Where a run stands; with the weights and the optimizers' memory, all that resuming needs."""

    step: int = 0
    samples: int = 0  # drawn so far: the number of the next one
    tokens: int = 0
    seconds: float = 0.0  # counted only where the budget is one of time, so that equal runs are equal
    anneal_from: int | None = None  # the first sample that came from the second list of sources


class Step(NamedTuple):
    step: int  # steps made so far
    tokens: int
    loss: float  # nats a target
    grad_norm: float
    lr: float
    progress: float


class NotFinite(EnvironmentFailed):
    """A loss or gradient that is no number; nothing was updated with it."""


def train(
    model: nn.Module,
    optimizers: list[Optimizer],
    tokens: Tokens,
    mixture: Mixture,
    recipe: Recipe,
    budget: Budget,
    at: Place,
    anneal: Mixture | None = None,
) -> Iterator[Step]:
    """Trains until the budget is spent, moving `at`. In between the caller has the model to itself."""
    tap = Dropout(recipe.dropout) if recipe.dropout else FUSED
    started, before = time.monotonic(), at.seconds
    model.train()
    while (progress := budget.progress(at)) < 1:
        if anneal is not None and at.anneal_from is None and progress >= 1 - recipe.decay:
            at.anneal_from = at.samples
        factor = lr_factor(recipe, at.step, progress)
        set_lr(optimizers, factor)
        torch.manual_seed(mixed(recipe.seed, at.step) >> 1)  # dropout, too, is a function of seed and step
        rows = [_sample(mixture, anneal, at, at.samples + i) for i in range(recipe.batch)]
        loss = _gradients(model, [*_micro_batches(tokens, rows, recipe.micro_batch)], tap)
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), recipe.clip or math.inf))
        if not math.isfinite(loss) or not math.isfinite(norm):
            what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
            raise NotFinite(f"{what} at step {at.step + 1}, samples {at.samples} to {at.samples + recipe.batch - 1}")
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        at.step += 1
        at.samples += recipe.batch
        at.tokens += recipe.batch * mixture.length
        if budget.seconds is not None:
            at.seconds = before + time.monotonic() - started
        yield Step(at.step, at.tokens, loss, norm, recipe.lr * factor, min(budget.progress(at), 1.0))


def _sample(mixture: Mixture, anneal: Mixture | None, at: Place, index: int) -> list[Span]:
    if anneal is not None and at.anneal_from is not None:
        return list(anneal.sample(index - at.anneal_from))
    return list(mixture.sample(index))


def _micro_batches(tokens: Tokens, rows: Sequence[Sequence[Span]], size: int) -> Iterator[Batch]:
    for start in range(0, len(rows), size):
        yield batch(tokens, rows[start : start + size])


def _gradients(model: nn.Module, batches: list[Batch], tap: object) -> float:
    """Leaves the gradient of the mean loss over all targets in the parameters."""
    count = sum(b.learnt for b in batches)
    total = 0.0
    for b in batches:
        logits = model(b.ids, tap=tap)  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), b.targets.flatten(), ignore_index=IGNORED, reduction="sum")
        (loss / count).backward()
        total += loss.item()
    return total / count
