"""How a decoder is to learn, for how long, and where it stands: plain numbers, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from transformer.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The defaults won the sweeps in docs/decisions.md."""

    optimizer: Literal["muon", "adamw"] = "muon"
    lr: float = 0.02  # of the matrices; with AdamW alone, of everything
    embedding_lr: float = 0.01  # of embedding, head, gains and biases beside Muon
    weight_decay: float = 0.0
    clip: float = 1.0  # of the gradient's norm; 0: never
    length: int = 0  # tokens a sample; 0: as many as the model can see
    batch: int = 64  # samples a step
    micro_batch: int = 16  # of them at once
    schedule: Literal["wsd", "cosine"] = "wsd"
    warmup: int = 40  # steps
    decay: float = 0.5  # the last part of the budget, in which a WSD schedule comes down
    floor: float = 0.05  # of the learning rate, at the end
    dropout: float = 0.0
    autocast: bool = False  # multiply in bf16
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("lr", 0.0, 10.0),
            ("embedding_lr", 0.0, 10.0),
            ("weight_decay", 0.0, 10.0),
            ("clip", 0.0, math.inf),
            ("length", 0, 2**31),
            ("batch", 1, 2**31),
            ("micro_batch", 1, 2**31),
            ("warmup", 0, 2**31),
            ("decay", 0.0, 1.0),
            ("floor", 0.0, 1.0),
            ("dropout", 0.0, 0.99),
            ("seed", 0, 2**63 - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name} must be between {low:g} and {high:g}, got {value}")
        for name, choices in (("optimizer", ("muon", "adamw")), ("schedule", ("wsd", "cosine"))):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} must be {' or '.join(choices)}, got {getattr(self, name)!r}")


@dataclass
class Place:
    """Where a run stands; with the weights and what the optimizers remember, all that resuming needs."""

    step: int = 0
    samples: int = 0  # drawn so far: the number of the next one
    tokens: int = 0
    seconds: float = 0.0  # counted only where the budget is one of time, so that equal runs are equal
    anneal_from: int | None = None  # the first sample that came from the second list of sources


@dataclass(frozen=True)
class Budget:
    """A number of steps, or of seconds."""

    steps: int | None = None
    seconds: float | None = None

    def progress(self, at: Place) -> float:
        """The part that is spent: 0 to 1, and a little over where it is time."""
        spent, whole = (at.step, self.steps) if self.steps is not None else (at.seconds, self.seconds)
        return spent / whole if whole else 1.0


def lr_factor(recipe: Recipe, budget: Budget, at: Place) -> float:
    """What the learning rates are multiplied with in the next step."""
    warmup = recipe.warmup if budget.steps is None else min(recipe.warmup, budget.steps // 10)
    warm = min(1.0, (at.step + 1) / (warmup + 1))
    progress = min(budget.progress(at), 1.0)
    if recipe.schedule == "cosine":
        fallen = 0.5 * (1 - math.cos(math.pi * progress))
    else:
        fallen = max(0.0, progress - (1 - recipe.decay)) / recipe.decay if recipe.decay else 0.0
    return warm * (1 - (1 - recipe.floor) * fallen)
