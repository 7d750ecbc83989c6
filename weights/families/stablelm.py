"""stablelm: llama with LayerNorm and a quarter of each head turned; may run attention and MLP side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transformer.config import Config, Norm
from weights.families import llama
from weights.families.family import Family, Tensors
from weights.families.foreign import Foreign

if TYPE_CHECKING:
    from torch import Tensor


def head_by_head(theirs: str, ours: str) -> Tensors:
    """A gain for each head, each a tensor of its own."""

    def load(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        import torch

        return [torch.stack(list(tensors))]

    def save(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return list(tensors[0])

    return Tensors((theirs,), (ours,), load, save)


TENSORS = (
    *llama.TENSORS,
    head_by_head("layers.{i}.self_attn.q_layernorm.norms.{head}", "blocks.{i}.attention.q_norm"),
    head_by_head("layers.{i}.self_attn.k_layernorm.norms.{kv_head}", "blocks.{i}.attention.k_norm"),
)


def read(c: Foreign) -> Config:
    c = c.defaulting(max_position_embeddings=4096, partial_rotary_factor=0.25)
    config = llama.read(c, partial=True)
    eps = c.number("layer_norm_eps", 1e-5)
    return replace(
        config,
        residual="parallel_shared" if c.flag("use_parallel_residual", False) else "pre",
        norm=Norm(kind="layer", eps=eps, bias=True),
        qkv_bias=c.flag("use_qkv_bias", False),
        qk_norm=Norm(kind="layer", eps=eps) if c.flag("qk_layernorm", False) else None,
        qk_norm_over="each_head" if c.flag("qk_layernorm", False) else "head",
    )


FAMILY = Family("stablelm", "StableLmForCausalLM", read, TENSORS, ignored=llama.IGNORED)
