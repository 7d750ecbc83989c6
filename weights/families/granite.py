"""granite: llama with multipliers on embeddings, scores and residuals; logits are divided."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config
from weights.families import llama
from weights.families.family import Family
from weights.families.foreign import Foreign


def read(c: Foreign) -> Config:
    config = llama.read(c)
    scale = c.number("attention_multiplier", 1.0)
    return replace(
        config,
        layers=tuple(replace(layer, attention_scale=scale) for layer in config.layers),
        residual_scale=c.number("residual_multiplier", 1.0),
        embed_scale=c.number("embedding_multiplier", 1.0),
        logit_scale=1 / c.number("logits_scaling", 1.0),
    )


FAMILY = Family("granite", "GraniteForCausalLM", read, llama.TENSORS, ignored=llama.IGNORED)
