"""gpt_neox: GPT-NeoX and Pythia: attention and MLP side by side with a norm each, a quarter of each head turned."""

from __future__ import annotations

from typing import Any

from transformer.config import Config, Layer, Norm
from weights.families.family import ACTIVATIONS, FOREIGN_ACTIVATIONS, Family, grouped, same
from weights.families.foreign import Foreign
from weights.families.rope import read_rope, write_rope

TENSORS = (
    same("embed_in", "embed"),
    same("layers.{i}.input_layernorm", "blocks.{i}.attention_norm"),
    grouped("layers.{i}.attention.query_key_value"),
    same("layers.{i}.attention.dense", "blocks.{i}.attention.out"),
    same("layers.{i}.post_attention_layernorm", "blocks.{i}.mlp_norm"),
    same("layers.{i}.mlp.dense_h_to_4h", "blocks.{i}.mlp.up"),
    same("layers.{i}.mlp.dense_4h_to_h", "blocks.{i}.mlp.down"),
    same("final_layer_norm", "final_norm"),
    same("embed_out", "head"),
)
IGNORED = (r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)", r"rotary_emb\.inv_freq")


def read(c: Foreign) -> Config:
    c = c.defaulting(
        partial_rotary_factor=c.number("rotary_pct", 0.25),
        rope_theta=c.number("rotary_emb_base", 10_000.0),
    )
    heads, width = c.integer("num_attention_heads"), c.integer("hidden_size")
    head_dim = width // heads
    bias = c.flag("attention_bias", True)
    layer = Layer(
        mlp_width=c.integer("intermediate_size"),
        attention_scale=head_dim**-0.5,
        rope=read_rope(c, head_dim, partial=True),
    )
    return Config(
        vocab_size=c.integer("vocab_size"),
        context=c.integer("max_position_embeddings", 2048),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        layers=(layer,) * c.layers("num_hidden_layers"),
        residual="parallel" if c.flag("use_parallel_residual", True) else "pre",
        norm=Norm(kind="layer", eps=c.number("layer_norm_eps", 1e-5), bias=True),
        qkv_bias=bias,
        out_bias=bias,
        gated=False,
        activation=c.choice("hidden_act", ACTIVATIONS, "gelu"),
        mlp_bias=True,
        tied=c.flag("tie_word_embeddings", False),
    )


def write(config: Config) -> dict[str, Any]:
    layer = config.layers[0]
    rope = {**write_rope(layer.rope), "partial_rotary_factor": layer.rope.dim / config.head_dim} if layer.rope else None
    return {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context,
        "hidden_size": config.width,
        "num_hidden_layers": len(config.layers),
        "num_attention_heads": config.heads,
        "intermediate_size": layer.mlp_width,
        "hidden_act": FOREIGN_ACTIVATIONS[config.activation],
        "layer_norm_eps": config.norm.eps,
        "attention_bias": config.qkv_bias,
        "use_parallel_residual": config.residual == "parallel",
        "rope_parameters": rope,
        "tie_word_embeddings": config.tied,
    }


FAMILY = Family("gpt_neox", "GPTNeoXForCausalLM", read, TENSORS, "gpt_neox.", IGNORED, write, ("embed_out",))
