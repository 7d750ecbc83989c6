"""How much memory training will take, found before it is taken."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer.dropout import Dropout
from transformer.model import Transformer
from transformer.schedule import Recipe
from transformer.tap import FUSED


def training_bytes(model: Transformer, recipe: Recipe, length: int) -> int:
    """Beyond the parameters: gradients, what the optimizers remember, and what a micro-batch keeps for its way back.

    The last is counted on one sample, passed through the model, and grows with their number."""
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
    # Behind the logits come their log-softmax, its gradient and theirs.
    sample = sum(storages.values()) + 3 * logits.untyped_storage().nbytes()
    weights = sum(p.nbytes for p in parameters)
    inside = sum(p.nbytes for name, p in model.named_parameters() if name.startswith("blocks."))
    memory = inside + 2 * (weights - inside) if recipe.optimizer == "muon" else 2 * weights
    return weights + memory + sample * min(recipe.micro_batch, recipe.batch)
