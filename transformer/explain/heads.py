"""A head's own part of its layer's output projection."""

from __future__ import annotations

from torch import Tensor

from transformer.attention import Attention
from transformer.model import Transformer


def attention_of(model: Transformer, layer: int) -> Attention:
    attention = model.blocks[layer].attention
    assert isinstance(attention, Attention)
    return attention


def projection(model: Transformer, layer: int) -> Tensor:
    """What turns the readings of a layer's heads into the stream's width, in fp64 on the CPU: (C, H, D)"""
    weight = attention_of(model, layer).out.weight.double().cpu()
    return weight.unflatten(1, (model.config.heads, model.config.head_dim))
