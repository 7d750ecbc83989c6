"""Direct logit attribution: which part of the model wrote how much of a logit into the stream.

Every part's output goes to the logit by a linear map once the scale of each norm on the way is held at the value it
had in this pass, so the shares add up to the logit; `gap` says how nearly.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from transformer.explain.heads import attention_of, projection
from transformer.explain.target import Target
from transformer.model import PostNormBlock, Scale, Transformer
from transformer.norm import LayerNorm, RMSNorm
from transformer.recording import Observer, Rows


class Part(NamedTuple):
    kind: Literal["embedding", "head", "mlp", "bias"]
    layer: int | None
    head: int | None
    share: float


class Attribution(NamedTuple):
    parts: list[Part]
    logit: float  # as the model computes it, before any soft-cap

    @property
    def gap(self) -> float:
        return self.logit - sum(part.share for part in self.parts)


class Written(Observer):
    """What every part wrote at one position, heads apart: their readings before the output projection (L, H, D),
    the embedding and the MLPs as they entered the stream."""

    def __init__(self, model: Transformer, row: int):
        c = model.config
        self.row, self.rows = row, (row,)
        self.readings = torch.zeros(len(c.layers), c.heads, c.head_dim, dtype=torch.float64)
        self.embedding = torch.empty(0)
        self.mlps: list[Tensor] = []

    def attention(self, rows: Rows) -> None:
        assert rows.values is not None
        self.readings[rows.layer] = (rows.weights.double() @ rows.values.double())[:, 0].cpu()

    def stream(self, layer: int, part: str, x: Tensor) -> None:
        if part == "embedding":
            self.embedding = x[self.row].double().cpu()
        elif part == "mlp":
            self.mlps.append(x[self.row].double().cpu())


def attribute(model: Transformer, written: Written, x: Tensor, target: Target) -> Attribution:
    """Carries each part through the norms behind it to the logit; x (T, C) is the stream behind the last block."""
    ledger = _Ledger(written.embedding)
    for layer, block in enumerate(model.blocks):
        heads = torch.einsum("chd,hd->hc", projection(model, layer), written.readings[layer])
        own = _Ledger(heads[0], ("head", layer, 0))
        for head in range(1, len(heads)):
            own.add(("head", layer, head), heads[head])
        if (bias := attention_of(model, layer).out.bias) is not None:
            own.add(("bias", layer, None), bias.double().cpu())
        if isinstance(block, PostNormBlock):
            ledger.join(own)
            ledger.through(block.attention_norm, layer)
            ledger.add(("mlp", layer, None), written.mlps[layer])
            ledger.through(block.mlp_norm, layer)
        else:
            own.through(getattr(block, "attention_output", nn.Identity()), layer)
            ledger.join(own)
            ledger.add(("mlp", layer, None), written.mlps[layer])
    ledger.through(model.final_norm, None)
    vector, offset = (tensor.double().cpu() for tensor in target.direction(model))
    shares = (torch.stack(ledger.vectors) @ vector).tolist()
    parts = [Part(*name, share) for name, share in zip(ledger.names, shares, strict=True)]
    if model.head.bias is not None:
        parts.append(Part("bias", None, None, float(offset)))
    return Attribution(_summed(parts), float(target.reader(model)(x[None])[0]))


Name = tuple[Literal["embedding", "head", "mlp", "bias"], int | None, int | None]


class _Ledger:
    """Vectors that add up to the stream, each with the name of the part that wrote it."""

    def __init__(self, vector: Tensor, name: Name = ("embedding", None, None)):
        self.names, self.vectors = [name], [vector]

    def add(self, name: Name, vector: Tensor) -> None:
        self.names.append(name)
        self.vectors.append(vector)

    def join(self, other: _Ledger) -> None:
        self.names += other.names
        self.vectors += other.vectors

    def total(self) -> Tensor:
        return torch.stack(self.vectors).sum(0)

    def through(self, norm: nn.Module, layer: int | None) -> None:
        """Every vector through the norm, its scale held at what the total gives it; its bias is a part of its own."""
        if isinstance(norm, nn.Identity):
            return
        x = self.total()
        if isinstance(norm, Scale):
            self.vectors = [norm(v) for v in self.vectors]
        elif isinstance(norm, RMSNorm):
            scale = torch.rsqrt(x.square().mean() + norm.eps) * _gain(norm)
            self.vectors = [v * scale for v in self.vectors]
        else:
            assert isinstance(norm, LayerNorm)
            scale = torch.rsqrt(x.var(correction=0) + norm.eps) * _gain(norm)
            self.vectors = [(v - v.mean()) * scale for v in self.vectors]
            if norm.bias is not None:
                self.add(("bias", layer, None), norm.bias.double().cpu())


def _gain(norm: RMSNorm | LayerNorm) -> Tensor:
    if norm.weight is None:
        return torch.ones((), dtype=torch.float64)
    gain = norm.weight.double().cpu()
    return 1.0 + gain if getattr(norm, "unit_offset", False) else gain


def _summed(parts: list[Part]) -> list[Part]:
    """Biases of one layer as one part."""
    shares: dict[Name, float] = {}
    for part in parts:
        shares[part[:3]] = shares.get(part[:3], 0.0) + part.share
    return [Part(*name, share) for name, share in shares.items()]
