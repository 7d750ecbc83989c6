"""The numbers a decoder starts from."""

from __future__ import annotations

import torch
from torch import nn

from transformer.model import Transformer

EMBEDDING_STD = 0.02


@torch.no_grad()
def initialise(model: Transformer, seed: int) -> None:
    """Fills every parameter, by name and seed alone. What writes into the residual stream starts at zero, so that
    each block is the identity at first; other matrices keep the size of what passes through them."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        if leaf == "bias" or owner.endswith((".out", ".down")) or name.endswith(".mlp.down"):
            parameter.zero_()
        elif isinstance(module, nn.Embedding) or module is model.head:
            std = EMBEDDING_STD / model.config.embed_scale
            parameter.normal_(std=std, generator=generator)
        elif parameter.ndim == 1 or "norm" in owner:
            parameter.fill_(0.0 if model.config.norm.unit_offset else 1.0)
        else:
            parameter.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
