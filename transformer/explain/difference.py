"""Two texts, or two models on one text: what is read differently, and by whom."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import torch
from torch import Tensor


class Pair(NamedTuple):
    """A place in both: the same token, or one that stands where the other has another."""

    a: int
    b: int


class Change(NamedTuple):
    """What a query gives to a key in either; `layer` and `head` are None for the mean of all."""

    layer: int | None
    head: int | None
    query: Pair
    key: Pair
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.b - self.a


def align(a: Sequence[object], b: Sequence[object]) -> list[Pair]:
    """Tokens that stand in both, in order, and those that were exchanged one for one."""
    pairs = []
    for kind, a_start, a_end, b_start, b_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and a_end - a_start == b_end - b_start):
            pairs += [Pair(a_start + n, b_start + n) for n in range(a_end - a_start)]
    return pairs


def first_difference(a: Sequence[object], b: Sequence[object]) -> int | None:
    """Where two texts part; None if neither says anything that the other does not."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b)) if len(a) != len(b) else None


def changes(
    a: Tensor, b: Tensor, queries: Sequence[Pair], keys: Sequence[Pair], top: int, mean: bool = False
) -> list[Change]:
    """The largest differences between weights (L, H, queries, keys) of either side, largest first; of the mean of
    all heads, if that is wanted."""
    if mean:
        a, b = (x.mean((0, 1), keepdim=True) for x in (a, b))
    sizes = (b - a).abs()
    _, places = sizes.flatten().topk(min(top, sizes.numel()))
    found = []
    for place in places.tolist():
        layer, head, query, key = (int(i) for i in torch.unravel_index(torch.tensor(place), sizes.shape))
        values = (float(x[layer, head, query, key]) for x in (a, b))
        found.append(
            Change(None if mean else layer, None if mean else head, queries[query], keys[key], *values),
        )
    return found
