"""qwen3_moe: qwen3 with experts in most layers; every layer slides or none."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config, Experts, Layer
from transformer.errors import InputError
from weights.families import llama
from weights.families.family import Family, same, stacked_experts
from weights.families.foreign import Foreign
from weights.families.windows import slide_all

TENSORS = (
    *llama.TENSORS,
    *llama.HEAD_NORMS,
    same("layers.{i}.mlp.gate", "blocks.{i}.mlp.router"),
    same("layers.{i}.mlp.experts.{e}.gate_proj", "blocks.{i}.mlp.experts.{e}.gate"),
    same("layers.{i}.mlp.experts.{e}.up_proj", "blocks.{i}.mlp.experts.{e}.up"),
    same("layers.{i}.mlp.experts.{e}.down_proj", "blocks.{i}.mlp.experts.{e}.down"),
    *stacked_experts("layers.{i}.mlp.experts.gate_up_proj", "layers.{i}.mlp.experts.down_proj"),
)


def read(c: Foreign) -> Config:
    c = c.renamed(num_local_experts="num_experts").defaulting(max_position_embeddings=32_768, sliding_window=4096)
    config = llama.read(c)
    window = c.integer("sliding_window", None) if c.flag("use_sliding_window", False) else None
    layers = slide_all(config.layers, window)
    return replace(config, qk_norm=config.norm, layers=tuple(_layer(c, i, layer) for i, layer in enumerate(layers)))


def _layer(c: Foreign, i: int, layer: Layer) -> Layer:
    """With experts, unless it is one of those with a plain MLP."""
    step, plain = c.integer("decoder_sparse_step", 1), c.list("mlp_only_layers", [])
    if step < 1:
        raise InputError(f"{c.source}: decoder_sparse_step must be positive, got {step}")
    count = c.integer("num_experts", 128)
    if i in plain or count == 0 or (i + 1) % step:
        return layer
    experts = Experts(
        count=count,
        active=c.integer("num_experts_per_tok", 8),
        renormalise=c.flag("norm_topk_prob", False),
    )
    return replace(layer, mlp_width=c.integer("moe_intermediate_size", 768), experts=experts)


FAMILY = Family("qwen3_moe", "Qwen3MoeForCausalLM", read, TENSORS, ignored=llama.IGNORED)
