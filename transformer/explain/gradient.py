"""Gradient × input: how a logit would follow if one token's embedding grew or shrank a little."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from transformer.explain.integrated import Embedded
from transformer.explain.target import Target
from transformer.model import Transformer


def gradient_times_input(model: Transformer, ids: Sequence[int], target: Target) -> list[float]:
    """One signed number for each token up to the target's row."""
    text = torch.tensor([ids[: target.row + 1]], device=model.device)
    with torch.no_grad():
        tap = Embedded()
        model.hidden(text, tap=tap)
    assert tap.x is not None
    read = target.reader(model)
    with torch.enable_grad():
        x = tap.x.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(read(model.hidden(text, tap=Embedded(x))).sum(), x)
    return (gradient * x.detach())[0].double().sum(-1).tolist()
