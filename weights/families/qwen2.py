"""qwen2: llama with biases on queries, keys and values alone; upper layers may slide."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config
from weights.families import llama
from weights.families.family import Family
from weights.families.foreign import Foreign
from weights.families.windows import windowed


def read(c: Foreign) -> Config:
    c.refuse("use_mrope", unless=False)
    config = read_windows(c.defaulting(max_position_embeddings=32_768))
    return replace(config, qkv_bias=True, out_bias=False)


def read_windows(c: Foreign) -> Config:
    """llama, with a window from layer `max_window_layers` on if `use_sliding_window` says so."""
    c = c.defaulting(sliding_window=4096)
    window = c.integer("sliding_window", None) if c.flag("use_sliding_window", False) else None
    full = c.integer("max_window_layers", 28)
    config = llama.read(c)
    return replace(config, layers=windowed(c, config.layers, window, lambda i: window is not None and i >= full))


FAMILY = Family("qwen2", "Qwen2ForCausalLM", read, llama.TENSORS, ignored=llama.IGNORED)
