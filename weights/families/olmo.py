"""olmo: llama with norms that have no parameters; may clip queries, keys and values."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config, Norm
from weights.families import llama
from weights.families.family import Family
from weights.families.foreign import Foreign


def read(c: Foreign) -> Config:
    return replace(
        llama.read(c),
        norm=Norm(kind="layer", eps=1e-5, gain=False),
        clip_qkv=c.number("clip_qkv", None),
    )


FAMILY = Family("olmo", "OlmoForCausalLM", read, llama.TENSORS, ignored=llama.IGNORED)
