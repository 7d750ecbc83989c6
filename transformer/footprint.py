"""How much memory training will take, found before it is taken."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.dropout import Dropout
from transformer.model import Transformer
from transformer.schedule import Recipe
from transformer.tap import FUSED

LOADED = 25_000_000  # bytes of torch's kernels that only the first step brings into memory
HOLES = 1.5  # what a step takes beside what it keeps: gradients on their way back, and gaps between freed tensors


def training_bytes(model: Transformer, recipe: Recipe, length: int, shards: int = 1) -> int:
    """Beyond the parameters: gradients, what the optimizers remember, and what a micro-batch keeps for its way back.

    The last is counted on one sample, passed through the model, and grows with their number. LOADED and HOLES were
    measured, see docs/decisions.md. `shards` is the number of processes that share the parameters out."""
    parameters = list(model.parameters())
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.zeros(1, length, dtype=torch.int64, device=parameters[0].device)
    tap = Dropout(recipe.dropout) if recipe.dropout else FUSED
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(ids, tap=tap)
    for parameter in parameters:
        storages.pop(parameter.untyped_storage().data_ptr(), None)
    sample = sum(storages.values()) + logits.untyped_storage().nbytes()  # the latter as their log-softmax
    weights = sum(p.nbytes for p in parameters)
    inside = sum(p.nbytes for name, p in model.named_parameters() if name.startswith("blocks."))
    memory = inside + 2 * (weights - inside) if recipe.optimizer == "muon" else 2 * weights
    passing = max(sample * min(recipe.micro_batch, recipe.batch), inside)  # or the steps that Muon takes all at once
    return LOADED + (weights + memory) // shards + int(HOLES * passing)
