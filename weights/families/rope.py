"""Rotary positions as config.json tells them: `rope_theta` and `rope_scaling` (4) or `rope_parameters` (5)."""

from __future__ import annotations

import math

from transformer.config import Rope, RopeScaling
from transformer.errors import InputError
from weights.families.foreign import Foreign

KINDS: dict[str, RopeScaling] = {
    "default": "default",
    "linear": "linear",
    "dynamic": "dynamic",
    "yarn": "yarn",
    "llama3": "llama3",
    "longrope": "longrope",
    "su": "longrope",
}


def read_rope(c: Foreign, head_dim: int, *, partial: bool = False) -> Rope:
    """`partial` where a family may turn only part of each head."""
    p = _parameters(c)
    fraction = p.number("partial_rotary_factor", c.number("partial_rotary_factor", 1.0))
    if fraction != 1.0 and not partial:
        raise InputError(f"{c.source}: partial_rotary_factor {fraction} is not supported here, only 1.0")
    dim = int(head_dim * fraction)
    theta = p.number("rope_theta", c.number("rope_theta", 10_000.0))
    kind: RopeScaling = p.choice("rope_type", KINDS, p.text("type", "default"))
    context = c.integer("max_position_embeddings", 2048)
    # Outside the table it counts first: that is where Phi-3 keeps it.
    original = c.integer("original_max_position_embeddings", p.integer("original_max_position_embeddings", context))
    if kind == "default":
        return Rope(dim=dim, theta=theta)
    if kind == "linear":
        return Rope(dim=dim, theta=theta, scaling=kind, factor=p.number("factor"))
    if kind == "dynamic":
        return Rope(dim=dim, theta=theta, scaling=kind, factor=p.number("factor"), original_context=context)
    if kind == "llama3":
        return Rope(
            dim=dim,
            theta=theta,
            scaling=kind,
            factor=p.number("factor"),
            original_context=original,
            low_freq_factor=p.number("low_freq_factor"),
            high_freq_factor=p.number("high_freq_factor"),
        )
    factor = p.number("factor", context / original)
    if kind == "yarn":
        return Rope(
            dim=dim,
            theta=theta,
            scaling=kind,
            factor=factor,
            original_context=original,
            attention_factor=p.number("attention_factor", _yarn_attention(p, factor)),
            beta_fast=p.number("beta_fast", 32.0) or 32.0,
            beta_slow=p.number("beta_slow", 1.0) or 1.0,
            truncate=p.flag("truncate", True),
        )
    plain = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return Rope(
        dim=dim,
        theta=theta,
        scaling=kind,
        factor=factor,
        original_context=original,
        attention_factor=p.number("attention_factor", plain),
        short_factor=p.numbers("short_factor"),
        long_factor=p.numbers("long_factor"),
    )


def _parameters(c: Foreign) -> Foreign:
    scaling = c.table("rope_scaling", {})
    p = scaling if scaling.values else c.table("rope_parameters", {})
    for key, value in p.values.items():
        if isinstance(value, dict):
            raise InputError(f"{p.source}: parameters of their own for {key!r:.60} are not supported here")
    return p


def _yarn_attention(p: Foreign, factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    mscale, mscale_all = p.number("mscale", 0.0), p.number("mscale_all_dim", 0.0)
    return magnitude(mscale) / magnitude(mscale_all) if mscale and mscale_all else magnitude(1.0)


def write_rope(rope: Rope) -> dict[str, object]:
    """Only what training can make: plain frequencies."""
    return {"rope_type": "default", "rope_theta": rope.theta}
