"""qwen3: llama with a norm on every head of queries and keys; upper layers may slide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transformer.config import Config
from weights.families import llama
from weights.families.family import Family
from weights.families.foreign import Foreign
from weights.families.qwen2 import read_windows

TENSORS = (*llama.TENSORS, *llama.HEAD_NORMS)


def read(c: Foreign) -> Config:
    config = read_windows(c.defaulting(max_position_embeddings=32_768, head_dim=128))
    return replace(config, qk_norm=config.norm)


def write(config: Config) -> dict[str, Any]:
    values = llama.write(config)
    del values["mlp_bias"]
    return {**values, "use_sliding_window": False}


FAMILY = Family("qwen3", "Qwen3ForCausalLM", read, TENSORS, ignored=llama.IGNORED, write=write)
