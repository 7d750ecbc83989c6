"""ids -> batches -> steps: training as a generator, so that whoever runs it saves, evaluates and stops in between."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer.data import Batch, Mixture, Span, Tokens, batch, mixed
from transformer.dropout import Dropout
from transformer.errors import EnvironmentFailed
from transformer.lessons import Lessons, noted
from transformer.loss import Told, cross_entropy
from transformer.model import Transformer
from transformer.optim import set_lr
from transformer.parallel import World, alone, whole
from transformer.schedule import Budget, Place, Recipe, lr_factor
from transformer.tap import FUSED, Tap

ALONE = World()
Loss = Callable[[Tensor, Tensor, Told | None], Tensor]  # logits (N, V), targets (N,) -> nats, summed


class Step(NamedTuple):
    step: int  # steps made so far
    tokens: int
    loss: float  # nats a target
    grad_norm: float
    lr: float
    progress: float


@dataclass(frozen=True)
class Feed:
    """Sample numbers -> batches."""

    tokens: Tokens
    mixture: Mixture
    anneal: Mixture | None = None  # takes over at `Place.anneal_from`
    device: str = "cpu"

    def batches(self, samples: Sequence[int], at: Place, size: int) -> Iterator[Batch]:
        for start in range(0, len(samples), size):
            spans = [self._spans(index, at.anneal_from) for index in samples[start : start + size]]
            b = batch(self.tokens, spans)
            yield b._replace(ids=b.ids.to(self.device), targets=b.targets.to(self.device))

    def _spans(self, index: int, anneal_from: int | None) -> list[Span]:
        if self.anneal is not None and anneal_from is not None and index >= anneal_from:
            return list(self.anneal.sample(index - anneal_from))
        return list(self.mixture.sample(index))


@dataclass(frozen=True)
class Objective:
    """What training lowers, as the recipe wants it computed."""

    recipe: Recipe
    loss_of: Loss = cross_entropy
    teachers: Sequence[Transformer] = ()
    lessons: Lessons | None = None  # what the teachers have said so far

    def __call__(self, module: nn.Module, b: Batch, turn: int = 0) -> Tensor:
        """Nats, summed over the batch. The text is one voice and each teacher another."""
        tap = Dropout(self.recipe.dropout) if self.recipe.dropout else FUSED
        told = None
        if self.teachers:
            with torch.no_grad():
                told = Told(self._told(b, turn), len(self.teachers) / (len(self.teachers) + 1))
        return self.loss_of(self._logits(module, b.ids, tap), b.targets.flatten(), told)

    def _told(self, b: Batch, turn: int) -> Tensor:
        """(B·T, V). Teachers take turns: the gradient is linear in what they predict, so that one a batch, with the
        voices of all, is on average what all of them would say. Where lessons are kept all are asked, but only once,
        and the bytes of the lessons are what comes."""
        if self.lessons is None:
            return self._logits(self.teachers[turn % len(self.teachers)], b.ids, FUSED)
        missing = [row for row, start in enumerate(b.starts) if start not in self.lessons]
        if missing:
            ids = b.ids[missing]
            voices = Counter(self.teachers).items()
            answers = ((self._logits(teacher, ids, FUSED), count) for teacher, count in voices)
            for row, lesson in zip(missing, noted(answers).unflatten(0, ids.shape), strict=True):
                self.lessons[b.starts[row]] = lesson.cpu()
        return torch.cat([self.lessons[start] for start in b.starts]).to(b.ids.device)

    def _logits(self, module: nn.Module, ids: Tensor, tap: Tap) -> Tensor:
        """(B·T, V)"""
        with torch.autocast(ids.device.type, torch.bfloat16) if self.recipe.autocast else nullcontext():
            logits: Tensor = module(ids, tap=tap)
        return logits.flatten(0, 1)


class NotFinite(EnvironmentFailed):
    """A loss or gradient that is no number; nothing was updated with it."""


def train(
    module: nn.Module,
    optimizers: list[Optimizer],
    feed: Feed,
    objective: Objective,
    budget: Budget,
    at: Place,
    world: World = ALONE,
) -> Iterator[Step]:
    """Trains until the budget is spent, moving `at`. In between the caller has the model to itself."""
    recipe, started, before = objective.recipe, time.monotonic(), at.seconds
    while (progress := budget.progress(at)) < 1:
        if feed.anneal is not None and at.anneal_from is None and progress >= 1 - recipe.decay:
            at.anneal_from = at.samples
        factor = lr_factor(recipe, budget, at)
        set_lr(optimizers, factor)
        # Dropout, too, is a function of the seed and of where the run stands: there is no other state to save.
        torch.manual_seed(mixed(recipe.seed, at.step, world.rank) >> 1)
        module.train()
        mine = range(at.samples + world.rank, at.samples + recipe.batch, world.size)
        loss = _gradients(module, list(feed.batches(mine, at, recipe.micro_batch)), objective, at.step, world)
        norm = float(whole(nn.utils.clip_grad_norm_(module.parameters(), recipe.clip or math.inf)))
        _check_finite(loss, norm, at, recipe)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        at.step += 1
        at.samples += recipe.batch
        at.tokens += recipe.batch * feed.mixture.length
        if budget.seconds is not None:
            at.seconds = world.from_first(before + time.monotonic() - started)
        yield Step(at.step, at.tokens, loss, norm, recipe.lr * factor, min(budget.progress(at), 1.0))


def _gradients(module: nn.Module, batches: list[Batch], objective: Objective, step: int, world: World) -> float:
    """Leaves the gradient of the mean loss, over the targets of all processes, in the parameters."""
    (count,) = world.total(sum(b.learnt for b in batches))
    nats = 0.0
    for number, b in enumerate(batches, 1):
        with alone(module, number < len(batches)):
            loss = objective(module, b, step * len(batches) + number)
            # DDP and FSDP take the mean over processes; what is wanted is the sum.
            (loss * (world.size / max(count, 1))).backward()
            nats += loss.item()
    (nats,) = world.total(nats)
    return nats / max(count, 1)


def _check_finite(loss: float, norm: float, at: Place, recipe: Recipe) -> None:
    if not math.isfinite(loss) or not math.isfinite(norm):
        what = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradient is {norm}"
        last = at.samples + recipe.batch - 1
        raise NotFinite(f"{what} at step {at.step + 1} (samples {at.samples} to {last}); nothing was updated")
