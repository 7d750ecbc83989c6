"""phi3: Phi-3 to 4: llama with queries, keys and values in one matrix, gate and up in another; longrope."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config
from transformer.errors import InputError
from weights.families import llama
from weights.families.family import QKV, Family, same, stacked
from weights.families.foreign import Foreign
from weights.families.windows import slide_all

TENSORS = (
    *llama.ENDS,
    *llama.NORMS,
    stacked("layers.{i}.self_attn.qkv_proj", *QKV),
    same("layers.{i}.self_attn.o_proj", "blocks.{i}.attention.out"),
    stacked("layers.{i}.mlp.gate_up_proj", "blocks.{i}.mlp.gate", "blocks.{i}.mlp.up"),
    same("layers.{i}.mlp.down_proj", "blocks.{i}.mlp.down"),
)


def read(c: Foreign) -> Config:
    c = c.defaulting(
        max_position_embeddings=4096,
        original_max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        partial_rotary_factor=1.0,
    )
    config = llama.read(c, partial=True)
    rope = config.layers[0].rope
    assert rope is not None
    if rope.scaling not in ("default", "longrope"):
        raise InputError(f"{c.source}: rope_type {rope.scaling!r} is not supported here, only default, longrope")
    return replace(config, layers=slide_all(config.layers, c.integer("sliding_window", None)))


FAMILY = Family("phi3", "Phi3ForCausalLM", read, TENSORS, ignored=llama.IGNORED)
