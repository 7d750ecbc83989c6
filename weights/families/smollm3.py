"""smollm3: llama with no positions at all in every fourth layer."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config
from transformer.errors import InputError
from weights.families import llama
from weights.families.family import Family
from weights.families.foreign import Foreign
from weights.families.windows import windowed


def read(c: Foreign) -> Config:
    c = c.defaulting(max_position_embeddings=32_768, rope_theta=2_000_000.0, tie_word_embeddings=True)
    config = llama.read(c)
    count, every = len(config.layers), c.integer("no_rope_layer_interval", 4)
    turned = c.list("no_rope_layers", [int((i + 1) % every != 0) for i in range(count)])  # 1 where there is rope
    if len(turned) != count or any(turn not in (0, 1) for turn in turned):
        raise InputError(f"{c.source}: no_rope_layers must be 0 or 1 for {count} layers, got {turned!r:.60}")
    window = c.integer("sliding_window", None)
    slides = c.flag("use_sliding_window", False) and window is not None
    layers = windowed(c, config.layers, window, lambda i: slides and not turned[i])
    return replace(
        config,
        layers=tuple(layer if turned[i] else replace(layer, rope=None) for i, layer in enumerate(layers)),
    )


FAMILY = Family("smollm3", "SmolLM3ForCausalLM", read, llama.TENSORS, ignored=llama.IGNORED)
