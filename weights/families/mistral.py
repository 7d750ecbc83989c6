"""mistral: llama with a sliding window in every layer, or none."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config
from weights.families import llama
from weights.families.family import Family
from weights.families.foreign import Foreign
from weights.families.windows import slide_all


def read(c: Foreign) -> Config:
    c = c.defaulting(max_position_embeddings=131_072, sliding_window=4096)
    c.refuse("layer_types", unless=None)
    config = llama.read(c)
    return replace(config, layers=slide_all(config.layers, c.integer("sliding_window", None)))


FAMILY = Family("mistral", "MistralForCausalLM", read, llama.TENSORS, ignored=llama.IGNORED)
