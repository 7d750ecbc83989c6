"""The half of a block that looks at one token at a time: an MLP, gated or plain, or a choice among several."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.config import Config
from transformer.linear import Fused, Linear
from transformer.native_training import NativeGate
from transformer.norm import at_least_float32

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


class GatedMLP(nn.Module):
    native: NativeGate | None = None  # the gates, compiled, for training

    def __init__(self, config: Config, width: int):
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gate_up = Fused(config.width, {"gate": width, "up": width}, config.mlp_bias)
        self.down = Linear(width, config.width, config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        both = self.gate_up(x)  # (..., 2F)
        if self.native is not None and self.native.takes(both):
            return self.down(self.native(both))
        gate, up = self.gate_up.split(both)
        return self.down(self.activation(gate) * up)


class PlainMLP(nn.Module):
    def __init__(self, config: Config, width: int):
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.up = Linear(config.width, width, config.mlp_bias)
        self.down = Linear(width, config.width, config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class Mixture(nn.Module):
    """E gated MLPs of which a router lets each token use a few."""

    def __init__(self, config: Config, index: int):
        super().__init__()
        layer = config.layers[index]
        assert layer.experts is not None
        E, F_, C = layer.experts.count, layer.mlp_width, config.width
        self.active, self.renormalise = layer.experts.active, layer.experts.renormalise
        self.activation = ACTIVATIONS[config.activation]
        self.router = nn.Linear(C, E, bias=False)
        self.gate_up = nn.Parameter(torch.empty(E, 2 * F_, C))
        self.down = nn.Parameter(torch.empty(E, C, F_))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)  # (N, C)
        odds = at_least_float32(self.router(tokens)).softmax(-1)
        weights, chosen = odds.topk(self.active, dim=-1)  # (N, active)
        if self.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            rows, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = F.linear(tokens[rows], self.gate_up[expert]).chunk(2, dim=-1)
            answer = F.linear(self.activation(gate) * up, self.down[expert])
            y = y.index_add(0, rows, answer * weights[rows, place, None].to(answer.dtype))
        return y.view_as(x)


def build_mlp(config: Config, index: int) -> nn.Module:
    layer = config.layers[index]
    if layer.experts is not None:
        return Mixture(config, index)
    return (GatedMLP if config.gated else PlainMLP)(config, layer.mlp_width)
