"""mixtral: mistral with a choice among experts in every layer; w1, w3 and w2 are gate, up and down."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config, Experts
from weights.families import llama
from weights.families.family import Family, same, stacked_experts
from weights.families.foreign import Foreign
from weights.families.windows import slide_all

TENSORS = (
    *llama.ENDS,
    *llama.ATTENTION,
    *llama.NORMS,
    same("layers.{i}.block_sparse_moe.gate", "blocks.{i}.mlp.router"),
    same("layers.{i}.block_sparse_moe.experts.{e}.w1", "blocks.{i}.mlp.experts.{e}.gate"),
    same("layers.{i}.block_sparse_moe.experts.{e}.w3", "blocks.{i}.mlp.experts.{e}.up"),
    same("layers.{i}.block_sparse_moe.experts.{e}.w2", "blocks.{i}.mlp.experts.{e}.down"),
    same("layers.{i}.mlp.gate", "blocks.{i}.mlp.router"),
    *stacked_experts("layers.{i}.mlp.experts.gate_up_proj", "layers.{i}.mlp.experts.down_proj"),
)


def read(c: Foreign) -> Config:
    c = c.renamed(num_experts="num_local_experts").defaulting(
        max_position_embeddings=131_072, rms_norm_eps=1e-5, rope_theta=1_000_000.0
    )
    config = llama.read(c)
    experts = Experts(
        count=c.integer("num_local_experts", 8), active=c.integer("num_experts_per_tok", 2), renormalise=True
    )
    layers = slide_all(config.layers, c.integer("sliding_window", None))
    return replace(config, layers=tuple(replace(layer, experts=experts) for layer in layers))


FAMILY = Family("mixtral", "MixtralForCausalLM", read, TENSORS, ignored=llama.IGNORED)
