"""olmo2: llama that normalises what leaves attention and MLP, and all heads of queries and keys together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transformer.config import Config
from weights.families import llama
from weights.families.family import Family, same
from weights.families.foreign import Foreign

TENSORS = (
    *llama.ENDS,
    *llama.ATTENTION,
    *llama.HEAD_NORMS,
    *llama.MLP,
    same("layers.{i}.post_attention_layernorm", "blocks.{i}.attention_output"),
    same("layers.{i}.post_feedforward_layernorm", "blocks.{i}.mlp_output"),
)


def read(c: Foreign) -> Config:
    config = llama.read(c.defaulting(rms_norm_eps=1e-5))
    return replace(config, residual="output", qk_norm=config.norm, qk_norm_over="all_heads")


def write(config: Config) -> dict[str, Any]:
    values = llama.write(config)
    del values["mlp_bias"]
    return values


FAMILY = Family("olmo2", "Olmo2ForCausalLM", read, TENSORS, ignored=llama.IGNORED, write=write)
