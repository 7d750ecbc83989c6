"""How much memory training will take, found before it is taken."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.data import Batch
from transformer.model import Transformer
from transformer.train import Objective

LOADED = 25_000_000  # bytes of torch's kernels that only the first step brings into memory
HOLES = 1.5  # what a step takes beside what it keeps: gradients on their way back, and gaps between freed tensors


def training_bytes(model: Transformer, objective: Objective, length: int, shards: int = 1) -> int:
    """Beyond the parameters: gradients, what the optimizers remember, and what a micro-batch keeps for its way back.

    LOADED and HOLES were measured, see docs/decisions.md. `shards` is the number of processes that share the parameters
    out."""
    recipe = objective.recipe
    weights = sum(p.nbytes for p in model.parameters())
    inside = sum(p.nbytes for name, p in model.named_parameters() if name.startswith("blocks."))
    memory = inside + 2 * (weights - inside) if recipe.optimizer == "muon" else 2 * weights
    # What one sample keeps, what two do, and so what any number of them does.
    one, two = (_kept(model, objective, rows, length) for rows in (1, 2))
    rows = min(recipe.micro_batch, recipe.batch)
    passing = one + (two - one) * (rows - 1)
    passing = max(passing, inside)  # or the steps that Muon takes all at once
    return LOADED + (weights + memory) // shards + int(HOLES * passing)


def _kept(model: Transformer, objective: Objective, rows: int, length: int) -> int:
    """The bytes that a forward pass leaves for the way back."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.zeros(rows, length, dtype=torch.int64, device=model.device)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = objective(model, Batch(ids, ids, ids.numel()))
    for parameter in model.parameters():
        storages.pop(parameter.untyped_storage().data_ptr(), None)
    del loss  # and not before: it keeps all of them alive, so that no place is counted twice
    return sum(storages.values())
