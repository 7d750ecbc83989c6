"""Rotary positions as config.json tells them: `rope_theta` and `rope_scaling` (4) or `rope_parameters` (5)."""

from __future__ import annotations

import math

from transformer.config import Rope, RopeScaling
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


def read_rope(
    c: Foreign,
    head_dim: int,
    *,
    theta: float = 10_000.0,
    fraction: float = 1.0,
    layer_type: str | None = None,
) -> Rope:
    """`theta` and `fraction` are what holds when the file names none."""
    p = parameters(c, layer_type)
    fraction = p.number("partial_rotary_factor", c.number("partial_rotary_factor", fraction))
    dim = int(head_dim * fraction)
    theta = p.number("rope_theta", c.number("rope_theta", theta))
    kind: RopeScaling = p.choice("rope_type", KINDS, p.text("type", "default"))
    context = c.integer("max_position_embeddings", 2048)
    original = p.integer("original_max_position_embeddings", c.integer("original_max_position_embeddings", context))
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
        short_factor=tuple(float(f) for f in p.list("short_factor")),
        long_factor=tuple(float(f) for f in p.list("long_factor")),
    )


def parameters(c: Foreign, layer_type: str | None = None) -> Foreign:
    """The table of rotary parameters, that of one layer type where the file keeps several."""
    p = c.table("rope_parameters", c.values.get("rope_scaling") or {})
    return p.table(layer_type) if layer_type is not None and p.has(layer_type) else p


def _yarn_attention(p: Foreign, factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    mscale, mscale_all = p.number("mscale", 0.0), p.number("mscale_all_dim", 0.0)
    return magnitude(mscale) / magnitude(mscale_all) if mscale and mscale_all else magnitude(1.0)


def write_rope(rope: Rope) -> dict[str, object]:
    """Only what training can make: plain frequencies."""
    return {"rope_type": "default", "rope_theta": rope.theta}
