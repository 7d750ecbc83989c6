"""Optimizers: Muon for the matrices inside the blocks, AdamW for the rest."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from transformer.model import Transformer
from transformer.parallel import World, shared_like, whole
from transformer.pieces import Piece, pieces
from transformer.schedule import Recipe

MUON_MOMENTUM = 0.95


def orthogonalised(matrices: Tensor, steps: int = 5) -> Tensor:
    """Matrices (..., m, n) with their singular values pushed to about one and their directions kept.

    A quintic Newton–Schulz iteration, in the precision of the matrices; bf16 is enough for it."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


class Muon(Optimizer):
    """Momentum whose step is orthogonalised, one matrix at a time: q, k and v of a fused projection apart.

    With several processes each orthogonalises some of the parameters, for all."""

    def __init__(self, matrices: dict[nn.Parameter, list[Piece]], recipe: Recipe, world: World):
        self.pieces, self.world = matrices, world
        # Without hardware for it, bf16 is five times slower on a CPU.
        self.dtype = torch.bfloat16 if recipe.autocast else torch.float32
        super().__init__(list(matrices), {"lr": recipe.lr, "weight_decay": recipe.weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        parameters = group["params"]
        directions = [self._direction(parameter, number) for number, parameter in enumerate(parameters)]
        self.world.share(directions)
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.sub_(shared_like(direction, parameter), alpha=group["lr"])

    def _direction(self, parameter: nn.Parameter, number: int) -> Tensor:
        """Where the parameter is to go; nothing yet if another process is to find it."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(parameter.grad, 1 - MUON_MOMENTUM)
        ahead = whole(parameter.grad.lerp(momentum, MUON_MOMENTUM))  # Nesterov
        direction = torch.empty_like(ahead)
        if number % self.world.size == self.world.rank:
            for piece in self.pieces[parameter]:
                matrix = piece.of(ahead)
                wide = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                piece.of(direction).copy_(orthogonalised(matrix.to(self.dtype))).mul_(wide)
        return direction


def build_optimizers(model: Transformer, recipe: Recipe, world: World) -> list[Optimizer]:
    """Every parameter in exactly one of them; each group remembers the rate that `lr_factor` scales."""
    parameters = dict(model.named_parameters())
    inside: dict[nn.Parameter, list[Piece]] = {}
    for piece in pieces(model):
        parameter = parameters[piece.parameter]
        matrix = parameter.ndim == (2 if piece.expert is None else 3)
        if matrix and piece.name.startswith("blocks.") and "norm" not in piece.name:
            inside.setdefault(parameter, []).append(piece)
    rest = [parameter for parameter in parameters.values() if parameter not in inside]
    optimizers: list[Optimizer]
    if recipe.optimizer == "muon":
        optimizers = [
            Muon(inside, recipe, world),
            _adamw(_groups(rest, recipe.embedding_lr, recipe.weight_decay), (0.8, 0.95)),
        ]
    else:
        optimizers = [_adamw(_groups([*inside, *rest], recipe.lr, recipe.weight_decay), (0.9, 0.95))]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["full_lr"] = group["lr"]
    return optimizers


def _groups(parameters: list[nn.Parameter], lr: float, weight_decay: float) -> list[dict[str, object]]:
    """Matrices, embeddings among them, are decayed; gains and biases are not."""
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim == 1]
    groups = [(matrices, weight_decay), (vectors, 0.0)]
    return [{"params": group, "lr": lr, "weight_decay": decay} for group, decay in groups if group]


def _adamw(groups: list[dict[str, object]], betas: tuple[float, float]) -> AdamW:
    return AdamW(groups, betas=betas, eps=1e-10, fused=True)


def set_lr(optimizers: list[Optimizer], factor: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor


def optimizer_state(model: Transformer, optimizers: list[Optimizer]) -> Iterator[tuple[str, Tensor]]:
    """All an optimizer remembers, by the parameter's name and its own: `head.weight/exp_avg`. Whole tensors."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                yield f"{names[parameter]}/{key}", whole(value)


def restore_optimizers(model: Transformer, optimizers: list[Optimizer], state: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    owner = {p: o for o in optimizers for group in o.param_groups for p in group["params"]}
    for name, value in state.items():
        parameter, _, key = name.rpartition("/")
        target = parameters[parameter]
        owner[target].state[target][key] = shared_like(value, target) if value.shape == target.shape else value
