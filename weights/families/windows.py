"""Which layers see only a sliding window: `layer_types` in config.json, or a family's own rule where it has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from transformer.config import Layer
from transformer.errors import InputError
from weights.families.foreign import Foreign

FULL, SLIDING = "full_attention", "sliding_attention"


def layer_types(c: Foreign, count: int, slides: Callable[[int], bool]) -> list[str]:
    kinds = c.list("layer_types", [SLIDING if slides(i) else FULL for i in range(count)])
    if len(kinds) != count:
        raise InputError(f"{c.source}: {len(kinds)} layer_types for {count} layers")
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            raise InputError(f"{c.source}: layer type {kind!r:.60} is not supported, only {FULL}, {SLIDING}")
    return kinds


def windowed(
    c: Foreign, layers: tuple[Layer, ...], window: int | None, slides: Callable[[int], bool]
) -> tuple[Layer, ...]:
    kinds = layer_types(c, len(layers), slides)
    if SLIDING in kinds and window is None:
        raise InputError(f"{c.source}: {kinds.count(SLIDING)} layers slide but sliding_window is missing")
    return tuple(
        replace(layer, window=window if kind == SLIDING else None) for layer, kind in zip(layers, kinds, strict=True)
    )


def slide_all(layers: tuple[Layer, ...], window: int | None) -> tuple[Layer, ...]:
    return tuple(replace(layer, window=window) for layer in layers)
