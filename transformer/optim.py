"""Optimizers: Muon for the matrices inside the blocks, AdamW for the rest; and the course of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from transformer.model import Transformer
from transformer.pieces import Piece, pieces

MUON_MOMENTUM = 0.95


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a decoder learns. The defaults won the sweeps in docs/decisions.md."""

    optimizer: Literal["muon", "adamw"] = "muon"
    lr: float = 0.02  # of the matrices, or of everything with AdamW alone
    embedding_lr: float = 0.003  # of embedding, head, gains and biases beside Muon
    weight_decay: float = 0.0
    clip: float = 1.0
    batch: int = 64  # samples a step
    micro_batch: int = 16  # of them at once
    schedule: Literal["wsd", "cosine"] = "wsd"
    warmup: int = 40  # steps
    decay: float = 0.5  # the last part of the budget, in which a WSD schedule comes down
    floor: float = 0.05  # of the learning rate, at the end
    dropout: float = 0.0
    seed: int = 0


def lr_factor(recipe: Recipe, step: int, progress: float) -> float:
    """What the learning rates are multiplied with when `progress` of the budget (0 to 1) is spent."""
    warm = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    if recipe.schedule == "cosine":
        fall = 0.5 * (1 - math.cos(math.pi * min(progress, 1.0)))
    else:
        fall = max(0.0, progress - (1 - recipe.decay)) / recipe.decay if recipe.decay else 0.0
    return warm * (1 - (1 - recipe.floor) * min(fall, 1.0))


def orthogonalised(matrices: Tensor, steps: int = 5) -> Tensor:
    """Matrices (..., m, n) with their singular values pushed to about one and their directions kept.

    A quintic Newton–Schulz iteration. In fp32: without hardware for it, bf16 is five times slower on a CPU."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


class Muon(Optimizer):
    """Momentum whose step is orthogonalised, one matrix at a time: q, k and v of a fused projection apart."""

    def __init__(self, matrices: dict[nn.Parameter, list[Piece]], lr: float, weight_decay: float):
        self.pieces = matrices
        super().__init__(list(matrices), {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].lerp_(parameter.grad, 1 - MUON_MOMENTUM)
                ahead = parameter.grad.lerp(momentum, MUON_MOMENTUM)  # Nesterov
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                for piece in self.pieces[parameter]:
                    target, direction = piece.of(parameter), orthogonalised(piece.of(ahead))
                    out, into = target.shape
                    target.add_(direction, alpha=-group["lr"] * max(1.0, out / into) ** 0.5)


def build_optimizers(model: Transformer, recipe: Recipe) -> list[Optimizer]:
    """Every parameter in exactly one of them; each group remembers the rate that `lr_factor` scales."""
    parameters = dict(model.named_parameters())
    inside: dict[nn.Parameter, list[Piece]] = {}
    for piece in pieces(model):
        parameter = parameters[piece.parameter]
        if "blocks." in piece.name and "norm" not in piece.name and piece.of(parameter).ndim == 2:
            inside.setdefault(parameter, []).append(piece)
    rest = [parameter for parameter in parameters.values() if parameter not in inside]
    optimizers: list[Optimizer]
    if recipe.optimizer == "muon":
        optimizers = [
            Muon(inside, recipe.lr, recipe.weight_decay),
            _adamw([{"params": rest, "lr": recipe.embedding_lr, "weight_decay": 0.0}], (0.8, 0.95)),
        ]
    else:
        decayed = {"params": list(inside), "lr": recipe.lr, "weight_decay": recipe.weight_decay}
        optimizers = [_adamw([decayed, {"params": rest, "lr": recipe.lr, "weight_decay": 0.0}], (0.9, 0.95))]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["full_lr"] = group["lr"]
    return optimizers


def _adamw(groups: list[dict[str, object]], betas: tuple[float, float]) -> AdamW:
    return AdamW(groups, betas=betas, eps=1e-10, fused=True)


def set_lr(optimizers: list[Optimizer], factor: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor


def optimizer_state(model: Transformer, optimizers: list[Optimizer]) -> Iterator[tuple[str, Tensor]]:
    """All an optimizer remembers, by the parameter's name and its own: `head.weight/exp_avg`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                yield f"{names[parameter]}/{key}", value


def restore_optimizers(model: Transformer, optimizers: list[Optimizer], state: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    owner = {p: o for o in optimizers for group in o.param_groups for p in group["params"]}
    for name, value in state.items():
        parameter, _, key = name.rpartition("/")
        owner[parameters[parameter]].state[parameters[parameter]][key] = value
