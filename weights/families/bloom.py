"""bloom: ALiBi instead of positions, and a norm on the embeddings."""

from __future__ import annotations

from typing import Any

from transformer.config import Alibi, Config, Layer, Norm
from weights.families.family import Family, grouped, same
from weights.families.foreign import Foreign

TENSORS = (
    same("word_embeddings", "embed"),
    same("word_embeddings_layernorm", "embed_norm"),
    same("h.{i}.input_layernorm", "blocks.{i}.attention_norm"),
    grouped("h.{i}.self_attention.query_key_value"),
    same("h.{i}.self_attention.dense", "blocks.{i}.attention.out"),
    same("h.{i}.post_attention_layernorm", "blocks.{i}.mlp_norm"),
    same("h.{i}.mlp.dense_h_to_4h", "blocks.{i}.mlp.up"),
    same("h.{i}.mlp.dense_4h_to_h", "blocks.{i}.mlp.down"),
    same("ln_f", "final_norm"),
    same("lm_head", "head"),
)


def read(c: Foreign) -> Config:
    c = c.renamed(n_embed="hidden_size", num_hidden_layers="n_layer", num_attention_heads="n_head")
    c.refuse("apply_residual_connection_post_layernorm", unless=False)
    c.refuse("slow_but_exact", unless=False)
    heads, width = c.integer("n_head"), c.integer("hidden_size")
    head_dim = width // heads
    return Config(
        vocab_size=c.integer("vocab_size"),
        context=c.integer("seq_length", 2048),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        layers=(Layer(mlp_width=4 * width, attention_scale=head_dim**-0.5),) * c.layers("n_layer"),
        norm=Norm(kind="layer", eps=c.number("layer_norm_epsilon", 1e-5), bias=True),
        alibi=Alibi(),
        qkv_bias=True,
        out_bias=True,
        gated=False,
        activation="gelu_tanh",
        mlp_bias=True,
        embed_norm=True,
        tied=c.flag("tie_word_embeddings", True),
    )


def write(config: Config) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "seq_length": config.context,
        "hidden_size": config.width,
        "n_layer": len(config.layers),
        "n_head": config.heads,
        "layer_norm_epsilon": config.norm.eps,
        "tie_word_embeddings": config.tied,
    }


FAMILY = Family("bloom", "BloomForCausalLM", read, TENSORS, "transformer.", write=write)
