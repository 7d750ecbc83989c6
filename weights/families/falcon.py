"""falcon: 7B shares one key/value head, 40B some; attention and MLP side by side with one norm or two, or in turn."""

from __future__ import annotations

from transformer.config import Alibi, Config, Layer, Norm, Residual
from transformer.errors import InputError
from weights.families.family import ACTIVATIONS, Family, grouped, same
from weights.families.foreign import Foreign
from weights.families.rope import read_rope


def two_norms(config: Config) -> bool:
    return config.residual == "parallel"


def not_two_norms(config: Config) -> bool:
    return config.residual != "parallel"


TENSORS = (
    same("word_embeddings", "embed"),
    same("h.{i}.ln_attn", "blocks.{i}.attention_norm", when=two_norms),
    same("h.{i}.ln_mlp", "blocks.{i}.mlp_norm", when=two_norms),
    same("h.{i}.input_layernorm", "blocks.{i}.attention_norm", when=not_two_norms),
    same("h.{i}.post_attention_layernorm", "blocks.{i}.mlp_norm", when=not_two_norms),
    grouped("h.{i}.self_attention.query_key_value"),
    same("h.{i}.self_attention.dense", "blocks.{i}.attention.out"),
    same("h.{i}.mlp.dense_h_to_4h", "blocks.{i}.mlp.up"),
    same("h.{i}.mlp.dense_4h_to_h", "blocks.{i}.mlp.down"),
    same("ln_f", "final_norm"),
    same("lm_head", "head"),
)
IGNORED = (r"(h\.\d+\.self_attention\.)?(rotary_emb|rotary|maybe_rotary)\.inv_freq",)


def read(c: Foreign) -> Config:
    c = c.renamed(
        n_embed="hidden_size", n_layer="num_hidden_layers", n_head="num_attention_heads", n_head_kv="num_kv_heads"
    )
    c.refuse("apply_residual_connection_post_layernorm", unless=False)
    heads, width, bias = c.integer("num_attention_heads"), c.integer("hidden_size"), c.flag("bias", False)
    head_dim, alibi = width // heads, c.flag("alibi", False)
    layer = Layer(
        mlp_width=c.integer("ffn_hidden_size", 4 * width),
        attention_scale=head_dim**-0.5,
        rope=None if alibi else read_rope(c, head_dim),
    )
    return Config(
        vocab_size=c.integer("vocab_size"),
        context=c.integer("max_position_embeddings", 2048),
        width=width,
        heads=heads,
        kv_heads=_kv_heads(c, heads),
        head_dim=head_dim,
        layers=(layer,) * c.layers("num_hidden_layers"),
        residual=_residual(c),
        norm=Norm(kind="layer", eps=c.number("layer_norm_epsilon", 1e-5), bias=True),
        alibi=Alibi(scale=head_dim**-0.5, rounded=True) if alibi else None,
        qkv_bias=bias,
        out_bias=bias,
        gated=False,
        activation=c.choice("activation", ACTIVATIONS, "gelu"),
        mlp_bias=bias,
        tied=c.flag("tie_word_embeddings", True),
    )


def _kv_heads(c: Foreign, heads: int) -> int:
    if c.flag("new_decoder_architecture", False):
        return c.integer("num_kv_heads", heads)
    return 1 if c.flag("multi_query", True) else heads


def _residual(c: Foreign) -> Residual:
    new, parallel = c.flag("new_decoder_architecture", False), c.flag("parallel_attn", True)
    norms = c.integer("num_ln_in_parallel_attn", 2 if new else 1)
    if new and not parallel:
        raise InputError(f"{c.source}: parallel_attn = False is not supported with new_decoder_architecture")
    if norms not in ((1, 2) if new else (1,)):
        raise InputError(f"{c.source}: num_ln_in_parallel_attn = {norms} is not supported here")
    if not parallel:
        return "pre"
    return "parallel" if norms == 2 else "parallel_shared"


FAMILY = Family("falcon", "FalconForCausalLM", read, TENSORS, "transformer.", IGNORED)
