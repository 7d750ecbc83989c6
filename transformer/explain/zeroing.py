"""Value zeroing: how far a token's vector turns, in each layer, when another token's value is taken away."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer.attention import Shared
from transformer.explain.stream import Stream
from transformer.mask import Mask
from transformer.model import Transformer
from transformer.recording import Rows
from transformer.tap import Fused, Rule

FAINT = 1e-5  # turns below this are rounding
ROWS = 1024  # tokens taken away in one pass through a block


class Readings(Fused):
    """Gives attention's answer beforehand: (B, H, T, D)."""

    def __init__(self, y: Tensor):
        self.y = y

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        return self.y


class Zeroing(Stream):
    """`turned` (L, n): 1 - cos between a block's output at one token with and without each value. Every layer
    starts from the stream as it really was, so a layer tells of itself alone."""

    def __init__(self, model: Transformer, token: int):
        super().__init__(model, [token])
        self.rows = (token,)
        self.turned = torch.zeros(len(model.blocks), token + 1)

    def attention(self, rows: Rows) -> None:
        assert rows.values is not None
        read = (rows.values * rows.weights[:, 0, :, None].to(rows.values.dtype)).transpose(0, 1)  # (S, H, D)
        whole = read.sum(0, keepdim=True)
        kept = self._behind(rows.layer, whole)
        turned = [1 - F.cosine_similarity(self._behind(rows.layer, whole - some), kept) for some in read.split(ROWS)]
        self.turned[rows.layer, rows.keys] = torch.cat(turned).float().cpu()

    def _behind(self, layer: int, y: Tensor) -> Tensor:
        """The block's output at the token for each of several answers of its attention (N, H, D) -> (N, C)"""
        nothing = [None] * len(self.blocks)
        shared = Shared(Readings(y[:, :, None]), None, list(nothing), list(nothing), list(nothing))
        x = self.x[None].expand(len(y), 1, -1)
        return self.blocks[layer](x, shared)[:, 0].double()

    def shares(self) -> Tensor:
        """Every layer's turns as shares, averaged over the layers: (n,)"""
        turned = self.turned.where(self.turned >= FAINT, 0.0)
        total = turned.sum(1, keepdim=True)
        return (turned / total.where(total > 0, 1.0)).mean(0)
