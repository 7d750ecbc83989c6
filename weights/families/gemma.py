"""gemma: llama whose norms store the distance from one; embeddings are scaled by the root of the width."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config
from weights.families import llama
from weights.families.family import ACTIVATIONS, Family
from weights.families.foreign import Foreign


def read(c: Foreign) -> Config:
    c = c.defaulting(hidden_act="gelu_pytorch_tanh")
    # The first releases said "gelu" and meant its approximation.
    return replace(read_base(c), activation=c.choice("hidden_act", {**ACTIVATIONS, "gelu": "gelu_tanh"}))


def read_base(c: Foreign) -> Config:
    """What all its generations share."""
    c.refuse("use_bidirectional_attention", unless=False)
    config = llama.read(c.defaulting(head_dim=256, max_position_embeddings=8192, tie_word_embeddings=True))
    return replace(config, norm=replace(config.norm, unit_offset=True), embed_scale=config.width**0.5)


FAMILY = Family("gemma", "GemmaForCausalLM", read, llama.TENSORS, ignored=llama.IGNORED)
