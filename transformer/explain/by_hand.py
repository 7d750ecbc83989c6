"""One row of one head, every number of it: what a person would compute on paper."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from transformer.explain.heads import projection
from transformer.mask import Mask
from transformer.model import Transformer
from transformer.tap import Fused, Rule, per_query_head


class ByHand(NamedTuple):
    """Columns have an entry a token up to the query; `score` is what enters the softmax, -inf where masked."""

    scale: float
    softcap: float | None
    q: Tensor  # (D,)
    k: Tensor  # (n, D)
    v: Tensor  # (n, D)
    dot: Tensor  # (n,) q·k
    scaled: Tensor  # (n,)
    capped: Tensor  # (n,) the same as `scaled` if there is no cap
    bias: Tensor | None  # (n,)
    score: Tensor  # (n,)
    exponential: Tensor  # (n,) e^(score - largest score)
    weight: Tensor  # (n,)
    contribution: Tensor  # (n,) length of weight × v after the output projection
    output: Tensor  # (D,) Σ weight × v
    error: float  # largest difference of `output` from what the model itself computed


class _Eavesdropper(Fused):
    """Keeps what one layer's attention was given and what it answered."""

    def __init__(self, layer: int):
        self.layer = layer

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        y = super().attend(q, k, v, mask, rule)
        if rule.layer == self.layer:
            self.q, self.k, self.v, self.mask, self.rule, self.y = q, k, v, mask, rule, y
        return y


def by_hand(model: Transformer, ids: Tensor, layer: int, head: int, token: int) -> ByHand:
    """ids (1, T)"""
    tap = _Eavesdropper(layer)
    model.hidden(ids[:, : token + 1], tap=tap)
    heads, rule = tap.q.shape[1], tap.rule
    q = tap.q[0, head, token].double()
    k, v = (per_query_head(x, heads)[0, head].double() for x in (tap.k, tap.v))
    dot = k @ q
    scaled = dot * rule.scale
    capped = scaled if rule.softcap is None else rule.softcap * torch.tanh(scaled / rule.softcap)
    bias = None if rule.bias is None else rule.bias[0, head, 0].double()
    score = capped if bias is None else capped + bias
    if tap.mask is not None:
        score = score.masked_fill(~tap.mask.rows(token, token + 1)[0, 0, 0], -torch.inf)
    exponential = (score - score.max()).exp()
    weight = exponential / exponential.sum()
    output = weight @ v
    project = projection(model, layer)[:, head].to(v.device)  # (C, D)
    return ByHand(
        scale=rule.scale,
        softcap=rule.softcap,
        q=q,
        k=k,
        v=v,
        dot=dot,
        scaled=scaled,
        capped=capped,
        bias=bias,
        score=score,
        exponential=exponential,
        weight=weight,
        contribution=weight * (v @ project.T).norm(dim=-1),
        output=output,
        error=float((output - tap.y[0, head, token].double()).abs().max()),
    )
