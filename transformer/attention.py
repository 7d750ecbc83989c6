"""Attention: project, rotate, remember, attend, project."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from transformer.cache import Step
from transformer.config import Config
from transformer.linear import Fused, Linear
from transformer.mask import Mask
from transformer.native_training import NativeAttention
from transformer.norm import AcrossHeads, build_norm
from transformer.position import Rotation
from transformer.tap import Rule, Tap


class Shared(NamedTuple):
    """What the layers of one forward pass share; lists have an entry a layer."""

    tap: Tap
    step: Step | None  # into the cache, if there is one
    masks: list[Mask | None]
    rotations: list[Rotation | None]
    biases: list[Tensor | None]


class Clamp(nn.Module):
    def __init__(self, limit: float):
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(-self.limit, self.limit)


class Attention(nn.Module):
    native: NativeAttention | None = None  # the same between the projections, compiled, for training

    def __init__(self, config: Config, index: int):
        super().__init__()
        H, K, D = config.heads, config.kv_heads, config.head_dim
        self.layer, self.head_dim = index, D
        self.scale, self.softcap = config.layers[index].attention_scale, config.attention_softcap
        self.qkv = Fused(config.width, {"q": H * D, "k": K * D, "v": K * D}, config.qkv_bias)
        self.clip = nn.Identity() if config.clip_qkv is None else Clamp(config.clip_qkv)
        self.q_norm, self.k_norm = _head_norm(config, H), _head_norm(config, K)
        self.out = Linear(H * D, config.width, config.out_bias)

    def forward(self, x: Tensor, shared: Shared) -> Tensor:
        B, T, _ = x.shape
        qkv, rotate = self.qkv(x), shared.rotations[self.layer]
        if self.native is not None and self.native.takes(qkv, shared, self.layer):
            return self.out(self.native(qkv, rotate))
        q, k, v = (self.clip(p).view(B, T, -1, self.head_dim) for p in self.qkv.split(qkv))  # (B, T, H or K, D)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, D), twice (B, K, T, D)
        if shared.step is not None:
            k, v = shared.step.update(self.layer, k, v)  # (B, K, S, D)
        rule = Rule(self.layer, self.scale, self.softcap, shared.biases[self.layer])
        y = shared.tap.attend(q, k, v, shared.masks[self.layer], rule)
        return self.out(y.transpose(1, 2).reshape(B, T, -1))  # (B, T, H·D) -> (B, T, C)


def _head_norm(config: Config, heads: int) -> nn.Module:
    """The norm of queries or keys (B, T, heads, D), if there is one."""
    D = config.head_dim
    if config.qk_norm is None:
        return nn.Identity()
    if config.qk_norm_over == "all_heads":
        return AcrossHeads((heads * D,), config.qk_norm)
    return build_norm((heads, D) if config.qk_norm_over == "each_head" else (D,), config.qk_norm)
