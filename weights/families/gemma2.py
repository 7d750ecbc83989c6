"""gemma2: gemma with norms on both sides, capped scores and logits, a window in every other layer."""

from __future__ import annotations

import math
from dataclasses import replace

from transformer.config import Config
from weights.families import gemma, llama
from weights.families.family import ACTIVATIONS, Family, same
from weights.families.foreign import Foreign
from weights.families.windows import windowed

TENSORS = (
    *llama.ENDS,
    *llama.ATTENTION,
    *llama.MLP,
    same("layers.{i}.input_layernorm", "blocks.{i}.attention_norm"),
    same("layers.{i}.post_attention_layernorm", "blocks.{i}.attention_output"),
    same("layers.{i}.pre_feedforward_layernorm", "blocks.{i}.mlp_norm"),
    same("layers.{i}.post_feedforward_layernorm", "blocks.{i}.mlp_output"),
)


def read(c: Foreign) -> Config:
    c = c.defaulting(sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    config = read_base(c)
    return replace(
        config,
        layers=windowed(c, config.layers, c.integer("sliding_window", None), lambda i: i % 2 == 0),
        attention_softcap=c.number("attn_logit_softcapping", None),
    )


def read_base(c: Foreign) -> Config:
    """What the third generation kept."""
    config = gemma.read_base(c)
    scale = 1 / math.sqrt(c.number("query_pre_attn_scalar", 256.0))
    return replace(
        config,
        residual="sandwich",
        layers=tuple(replace(layer, attention_scale=scale) for layer in config.layers),
        activation=c.choice("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh"),
        logit_softcap=c.number("final_logit_softcapping", None),
    )


FAMILY = Family("gemma2", "Gemma2ForCausalLM", read, TENSORS, ignored=llama.IGNORED)
