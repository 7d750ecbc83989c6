"""gemma3_text, and the text part of gemma3: head norms instead of caps, local layers with a rotation of their own."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config, Rope
from transformer.errors import InputError
from weights.families import gemma2, llama
from weights.families.family import Family
from weights.families.foreign import Foreign
from weights.families.rope import read_rope
from weights.families.windows import FULL, SLIDING, windowed

TENSORS = (*gemma2.TENSORS, *llama.HEAD_NORMS)
# The published files leave out whatever equals these.
DEFAULTS = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
}


def read(c: Foreign) -> Config:
    c = c.defaulting(**DEFAULTS)
    c.refuse("attn_logit_softcapping", unless=None)
    ropes = {SLIDING: _rope(c, SLIDING), FULL: _rope(c, FULL)}
    plain = {key: value for key, value in c.values.items() if key not in ("rope_scaling", "rope_parameters")}
    config = gemma2.read_base(Foreign(plain, c.source))
    every = c.integer("sliding_window_pattern", 6)
    layers = windowed(c, config.layers, c.integer("sliding_window", None), lambda i: (i + 1) % every != 0)
    return replace(
        config,
        layers=tuple(replace(layer, rope=ropes[SLIDING if layer.window else FULL]) for layer in layers),
        qk_norm=config.norm,
    )


def read_text_part(c: Foreign) -> Config:
    text = c.table("text_config")
    text.refuse("final_logit_softcapping", unless=None)
    return read(text.defaulting(tie_word_embeddings=c.flag("tie_word_embeddings", True)))


def _rope(c: Foreign, kind: str) -> Rope:
    """Of one kind of layer. In the older style scaling is for the global layers alone."""
    tables = c.table("rope_parameters", {})
    for key in tables.values:
        if key not in (FULL, SLIDING):
            raise InputError(f"{tables.source}: {key!r:.60} is not a kind of layer, only {FULL}, {SLIDING}")
    theta = {FULL: c.number("rope_theta", 1_000_000.0), SLIDING: c.number("rope_local_base_freq", 10_000.0)}[kind]
    scaling = c.table("rope_scaling", {}).values if kind == FULL else {}
    own = {**tables.table(kind, {}).values, **scaling}
    return read_rope(
        Foreign({**c.values, "rope_theta": theta, "rope_parameters": own, "rope_scaling": None}, c.source),
        c.integer("head_dim", 256),
    )


FAMILY = Family("gemma3_text", "Gemma3ForCausalLM", read, TENSORS, ignored=llama.IGNORED)
WITH_IMAGES = Family(
    "gemma3",
    "Gemma3ForConditionalGeneration",
    read_text_part,
    TENSORS,
    prefix="model.language_model.",
    other_prefixes=("language_model.model.", "language_model.", "model."),
    ignored=(*llama.IGNORED, r"(vision_tower|multi_modal_projector)\..*"),
)
