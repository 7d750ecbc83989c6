"""gpt2: its matrices are stored transposed (Conv1D), queries, keys and values in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformer.config import Config, Layer, Norm
from weights.families.family import ACTIVATIONS, FOREIGN_ACTIVATIONS, QKV, Family, Tensors, same
from weights.families.foreign import Foreign

if TYPE_CHECKING:
    from torch import Tensor


def conv1d(theirs: str, *ours: str) -> Tensors:
    """y = x·W + b with W (in, out): the columns are ours, one block after the other."""

    def load(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [t.t() if t.ndim == 2 else t for t in tensors[0].chunk(len(ours), dim=-1)]

    def save(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        import torch

        joined = torch.cat(list(tensors))
        return [joined.t() if joined.ndim == 2 else joined]

    return Tensors((theirs,), ours, load, save)


TENSORS = (
    same("wte", "embed"),
    same("wpe", "position"),
    same("h.{i}.ln_1", "blocks.{i}.attention_norm"),
    conv1d("h.{i}.attn.c_attn", *QKV),
    conv1d("h.{i}.attn.c_proj", "blocks.{i}.attention.out"),
    same("h.{i}.ln_2", "blocks.{i}.mlp_norm"),
    conv1d("h.{i}.mlp.c_fc", "blocks.{i}.mlp.up"),
    conv1d("h.{i}.mlp.c_proj", "blocks.{i}.mlp.down"),
    same("ln_f", "final_norm"),
    same("lm_head", "head"),
)
IGNORED = (r"h\.\d+\.attn\.(bias|masked_bias)",)


def read(c: Foreign) -> Config:
    c = c.renamed(
        hidden_size="n_embd",
        max_position_embeddings="n_positions",
        num_attention_heads="n_head",
        num_hidden_layers="n_layer",
    )
    heads, width = c.integer("n_head"), c.integer("n_embd")
    head_dim = width // heads
    scale = head_dim**-0.5 if c.flag("scale_attn_weights", True) else 1.0
    by_depth = c.flag("scale_attn_by_inverse_layer_idx", False)
    c.refuse("add_cross_attention", unless=False)
    return Config(
        vocab_size=c.integer("vocab_size"),
        context=c.integer("n_positions", 1024),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        layers=tuple(
            Layer(
                mlp_width=c.integer("n_inner", 4 * width),
                attention_scale=scale / (i + 1) if by_depth else scale,
            )
            for i in range(c.layers("n_layer"))
        ),
        norm=Norm(kind="layer", eps=c.number("layer_norm_epsilon", 1e-5), bias=True),
        position_embedding="learned",
        qkv_bias=True,
        out_bias=True,
        gated=False,
        activation=c.choice("activation_function", ACTIVATIONS, "gelu_new"),
        mlp_bias=True,
        tied=c.flag("tie_word_embeddings", True),
    )


def write(config: Config) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.context,
        "n_embd": config.width,
        "n_layer": len(config.layers),
        "n_head": config.heads,
        "n_inner": config.layers[0].mlp_width,
        "activation_function": FOREIGN_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.norm.eps,
        "tie_word_embeddings": config.tied,
    }


FAMILY = Family("gpt2", "GPT2LMHeadModel", read, TENSORS, "transformer.", IGNORED, write)
