"""llama: Llama 1 to 3.x, SmolLM2, TinyLlama and the many that follow their shape."""

from __future__ import annotations

from typing import Any

from transformer.config import Config, Layer, Norm
from weights.families.family import ACTIVATIONS, FOREIGN_ACTIVATIONS, Family, same
from weights.families.foreign import Foreign
from weights.families.rope import read_rope, write_rope

ENDS = (
    same("embed_tokens", "embed"),
    same("norm", "final_norm"),
    same("lm_head", "head"),
)
ATTENTION = (
    same("layers.{i}.self_attn.q_proj", "blocks.{i}.attention.q"),
    same("layers.{i}.self_attn.k_proj", "blocks.{i}.attention.k"),
    same("layers.{i}.self_attn.v_proj", "blocks.{i}.attention.v"),
    same("layers.{i}.self_attn.o_proj", "blocks.{i}.attention.out"),
)
HEAD_NORMS = (
    same("layers.{i}.self_attn.q_norm", "blocks.{i}.attention.q_norm"),
    same("layers.{i}.self_attn.k_norm", "blocks.{i}.attention.k_norm"),
)
MLP = (
    same("layers.{i}.mlp.gate_proj", "blocks.{i}.mlp.gate"),
    same("layers.{i}.mlp.up_proj", "blocks.{i}.mlp.up"),
    same("layers.{i}.mlp.down_proj", "blocks.{i}.mlp.down"),
)
NORMS = (
    same("layers.{i}.input_layernorm", "blocks.{i}.attention_norm"),
    same("layers.{i}.post_attention_layernorm", "blocks.{i}.mlp_norm"),
)
TENSORS = (*ENDS, *ATTENTION, *MLP, *NORMS)
IGNORED = (r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)


def read(c: Foreign, *, partial: bool = False) -> Config:
    """`partial` where a family of this shape may turn only part of each head."""
    heads, width = c.integer("num_attention_heads"), c.integer("hidden_size")
    head_dim = c.integer("head_dim", width // heads)
    bias = c.flag("attention_bias", False)
    layer = Layer(
        mlp_width=c.integer("intermediate_size"),
        attention_scale=head_dim**-0.5,
        rope=read_rope(c, head_dim, partial=partial),
    )
    return Config(
        vocab_size=c.integer("vocab_size"),
        context=c.integer("max_position_embeddings", 2048),
        width=width,
        heads=heads,
        kv_heads=c.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        layers=(layer,) * c.layers("num_hidden_layers"),
        norm=Norm(eps=c.number("rms_norm_eps", 1e-6)),
        qkv_bias=bias,
        out_bias=bias,
        activation=c.choice("hidden_act", ACTIVATIONS, "silu"),
        mlp_bias=c.flag("mlp_bias", False),
        tied=c.flag("tie_word_embeddings", False),
    )


def write(config: Config) -> dict[str, Any]:
    layer = config.layers[0]
    return {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context,
        "hidden_size": config.width,
        "num_hidden_layers": len(config.layers),
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": layer.mlp_width,
        "hidden_act": FOREIGN_ACTIVATIONS[config.activation],
        "rms_norm_eps": config.norm.eps,
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "rope_parameters": write_rope(layer.rope) if layer.rope else None,
        "tie_word_embeddings": config.tied,
    }


FAMILY = Family("llama", "LlamaForCausalLM", read, TENSORS, ignored=IGNORED, write=write)
