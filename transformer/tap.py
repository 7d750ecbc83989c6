"""The tap: the one place where a forward pass can be watched or changed.

`attend` turns queries, keys and values into what attention reads; `write` sees each vector on its way into the
residual stream and returns what shall be added instead. The default, `FUSED`, is torch's kernel and the identity.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from transformer.mask import Mask

ROW_BLOCK = 256  # query rows whose scores are held at once when the softmax is taken in the open


class Rule(NamedTuple):
    """How one layer scores: softmax(cap(q·k × scale) + bias)."""

    layer: int
    scale: float
    softcap: float | None
    bias: Tensor | None  # (B or 1, H, 1, S)


class Tap(Protocol):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        """q (B, H, T, D), k and v (B, K, S, D), no mask where every key may be read -> (B, H, T, D)"""

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        """x (B, T, C) is about to enter the stream; part is "embedding" (layer -1), "attention" or "mlp"."""


class Fused:
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        return fused_attention(q, k, v, mask, rule)

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        return x


FUSED = Fused()


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
    if rule.softcap is not None:  # torch's kernel has no cap
        return open_attention(q, k, v, mask, rule)
    B, H, T, D = q.shape
    if T == 1 and mask is None and rule.bias is None:
        # The heads of a group become the rows of one query matrix: the keys are read once, not once a head.
        grouped = q.view(B, k.shape[1], -1, D)  # (B, K, H / K, D)
        return F.scaled_dot_product_attention(grouped, k, v, scale=rule.scale).view(B, H, T, D)
    plain = mask is not None and mask.plain and rule.bias is None
    allowed = None if mask is None or plain else mask.whole
    if rule.bias is not None:
        allowed = rule.bias if allowed is None else torch.where(allowed, rule.bias, -torch.inf)
    return F.scaled_dot_product_attention(
        q, k, v, allowed, is_causal=plain, scale=rule.scale, enable_gqa=k.shape[1] != H
    )


def open_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
    """The same with the softmax in the open, some rows at a time."""
    blocks = []
    for start in range(0, q.shape[2], ROW_BLOCK):
        weights = attention_weights(q, k, mask, rule, start, min(start + ROW_BLOCK, q.shape[2]))
        blocks.append(weights.to(v.dtype) @ per_query_head(v, q.shape[1]))
    return torch.cat(blocks, dim=2)


def attention_weights(q: Tensor, k: Tensor, mask: Mask | None, rule: Rule, start: int, stop: int) -> Tensor:
    """Softmax rows start to stop, in at least fp32: (B, H, stop - start, S); 0 exactly where masked."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q[:, :, start:stop] @ per_query_head(k, q.shape[1]).transpose(-1, -2)).to(wide) * rule.scale
    if rule.softcap is not None:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    if rule.bias is not None:
        scores = scores + rule.bias
    if mask is not None:
        scores = scores.masked_fill(~mask.rows(start, stop), -torch.inf)
    return scores.softmax(-1)


def per_query_head(x: Tensor, heads: int) -> Tensor:
    """Keys or values (B, K, S, D), each repeated for the query heads that share it: (B, H, S, D)"""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)
