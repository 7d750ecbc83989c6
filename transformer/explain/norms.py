"""Attention weighted by what is read: a token that is looked at but says nothing does not count."""

from __future__ import annotations

import torch

from transformer.explain.heads import projection
from transformer.model import Transformer
from transformer.recording import Observer, Rows


class Norms(Observer):
    """The length of the vector that each token sends to one token, all heads of a layer together: `lengths`
    (L, n). Values go through the output projection without its bias, before any norm behind it."""

    def __init__(self, model: Transformer, token: int):
        self.model, self.rows = model, (token,)
        self.lengths = torch.zeros(len(model.blocks), token + 1, dtype=torch.float64)

    def attention(self, rows: Rows) -> None:
        self.lengths[rows.layer, rows.keys] = sent(self.model, rows).norm(dim=-1)

    def shares(self) -> torch.Tensor:
        """Every layer's lengths as shares, averaged over the layers: (n,)"""
        return (self.lengths / self.lengths.sum(1, keepdim=True)).mean(0)


def sent(model: Transformer, rows: Rows) -> torch.Tensor:
    """What every key adds to the attention output of the first of these rows: (S, C), fp64"""
    assert rows.values is not None
    read = rows.values.double().cpu() * rows.weights[:, 0, :, None].double().cpu()  # (H, S, D)
    return torch.einsum("chd,hsd->sc", projection(model, rows.layer), read)
