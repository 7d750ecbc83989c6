"""phi: Phi-1 to 2: one LayerNorm for attention and MLP side by side, part of each head turned, biases everywhere."""

from __future__ import annotations

from transformer.config import Config, Layer, Norm
from weights.families import llama
from weights.families.family import ACTIVATIONS, Family, same
from weights.families.foreign import Foreign
from weights.families.rope import read_rope

TENSORS = (
    *llama.ATTENTION[:3],
    same("embed_tokens", "embed"),
    same("layers.{i}.input_layernorm", "blocks.{i}.attention_norm"),
    same("layers.{i}.self_attn.dense", "blocks.{i}.attention.out"),
    same("layers.{i}.self_attn.q_layernorm", "blocks.{i}.attention.q_norm"),
    same("layers.{i}.self_attn.k_layernorm", "blocks.{i}.attention.k_norm"),
    same("layers.{i}.mlp.fc1", "blocks.{i}.mlp.up"),
    same("layers.{i}.mlp.fc2", "blocks.{i}.mlp.down"),
    same("final_layernorm", "final_norm"),
    same("lm_head", "head"),
)


def read(c: Foreign) -> Config:
    c = c.defaulting(partial_rotary_factor=0.5)
    heads, width = c.integer("num_attention_heads"), c.integer("hidden_size")
    head_dim = c.integer("head_dim", width // heads)
    norm = Norm(kind="layer", eps=c.number("layer_norm_eps", 1e-5), bias=True)
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
        kv_heads=c.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        layers=(layer,) * c.layers("num_hidden_layers"),
        residual="parallel_shared",
        norm=norm,
        qkv_bias=True,
        out_bias=True,
        qk_norm=norm if c.flag("qk_layernorm", False) else None,
        gated=False,
        activation=c.choice("hidden_act", ACTIVATIONS, "gelu_new"),
        mlp_bias=True,
        tied=c.flag("tie_word_embeddings", False),
        head_bias=True,
    )


FAMILY = Family("phi", "PhiForCausalLM", read, TENSORS, ignored=llama.IGNORED)
