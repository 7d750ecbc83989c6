"""opt: learned positions whose first two rows nothing reads; the 350m one normalises after, and embeds narrower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformer.config import Config, Layer, Norm
from weights.families.family import ACTIVATIONS, FOREIGN_ACTIVATIONS, Family, Tensors, same
from weights.families.foreign import Foreign

if TYPE_CHECKING:
    from torch import Tensor

UNUSED = 2


def positions(theirs: str) -> Tensors:
    def load(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [tensors[0][UNUSED:]]

    def save(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        import torch

        (rows,) = tensors
        return [torch.cat((rows.new_zeros(UNUSED, rows.shape[1]), rows))]

    return Tensors((theirs,), ("position",), load, save)


TENSORS = (
    same("embed_tokens", "embed"),
    same("project_in", "embed_in"),
    positions("embed_positions"),
    same("layers.{i}.self_attn_layer_norm", "blocks.{i}.attention_norm"),
    same("layers.{i}.self_attn.q_proj", "blocks.{i}.attention.q"),
    same("layers.{i}.self_attn.k_proj", "blocks.{i}.attention.k"),
    same("layers.{i}.self_attn.v_proj", "blocks.{i}.attention.v"),
    same("layers.{i}.self_attn.out_proj", "blocks.{i}.attention.out"),
    same("layers.{i}.final_layer_norm", "blocks.{i}.mlp_norm"),
    same("layers.{i}.fc1", "blocks.{i}.mlp.up"),
    same("layers.{i}.fc2", "blocks.{i}.mlp.down"),
    same("final_layer_norm", "final_norm"),
    same("project_out", "head_in"),
    same("lm_head", "head"),
)


def read(c: Foreign) -> Config:
    heads, width = c.integer("num_attention_heads"), c.integer("hidden_size")
    head_dim, embed_width = width // heads, c.integer("word_embed_proj_dim", width)
    bias, affine = c.flag("enable_bias", True), c.flag("layer_norm_elementwise_affine", True)
    before = c.flag("do_layer_norm_before", True)
    layer = Layer(mlp_width=c.integer("ffn_dim"), attention_scale=head_dim**-0.5)
    return Config(
        vocab_size=c.integer("vocab_size"),
        context=c.integer("max_position_embeddings", 2048),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        layers=(layer,) * c.layers("num_hidden_layers"),
        residual="pre" if before else "post",
        norm=Norm(kind="layer", eps=1e-5, gain=affine, bias=affine),
        final_norm=before and not c.flag("_remove_final_layer_norm", False),
        position_embedding="learned",
        qkv_bias=bias,
        out_bias=bias,
        gated=False,
        activation=c.choice("activation_function", ACTIVATIONS, "relu"),
        mlp_bias=bias,
        embed_width=None if embed_width == width else embed_width,
        tied=c.flag("tie_word_embeddings", True),
    )


def write(config: Config) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context,
        "hidden_size": config.width,
        "word_embed_proj_dim": config.embed_width or config.width,
        "num_hidden_layers": len(config.layers),
        "num_attention_heads": config.heads,
        "ffn_dim": config.layers[0].mlp_width,
        "activation_function": FOREIGN_ACTIVATIONS[config.activation],
        "do_layer_norm_before": config.residual == "pre",
        "_remove_final_layer_norm": config.residual == "pre" and not config.final_norm,
        "enable_bias": config.qkv_bias,
        "layer_norm_elementwise_affine": config.norm.gain,
        "tie_word_embeddings": config.tied,
    }


FAMILY = Family(
    "opt", "OPTForCausalLM", read, TENSORS, "model.decoder.", write=write, other_prefixes=("decoder.", "model.")
)
