"""The Recorder: a tap that takes the softmax in the open and shows each row to those who asked for it.

Memory follows the question. Rows come by in blocks, observers keep what they reduce them to, and a layer in which
nobody wants a row goes through the fused kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.mask import Mask
from transformer.tap import Rule, attention_weights, fused_attention, per_query_head

BLOCK = 1 << 20  # attention weights in the open at once: 4 MB of fp32, which a processor keeps at hand
ROWS = 32  # but not fewer rows than this, or the products become slow


class Rows(NamedTuple):
    """Some rows of one layer's attention. The keys stand side by side from `first` on; S ends at the last one
    that any of these rows may read."""

    layer: int
    queries: Tensor  # (R,) positions
    first: int
    weights: Tensor  # (H, R, S), 0 exactly where masked
    values: Tensor | None = None  # (H, S, D); None once pieces were merged into words

    @property
    def keys(self) -> slice:
        return slice(self.first, self.first + self.weights.shape[-1])

    def only(self, wanted: Sequence[int] | None) -> Rows:
        """The rows that an observer asked for."""
        if wanted is None:
            return self
        here = _among(self.queries, wanted)
        if bool(here.all()):
            return self
        queries = self.queries[here]
        seen = int(queries.max()) + 1 - self.first if len(queries) else 0
        values = None if self.values is None else self.values[:, :seen]
        return self._replace(queries=queries, weights=self.weights[:, here, :seen], values=values)


class Observer:
    """What is kept of a pass. `rows` are the positions whose attention it wants to see: None for all of them."""

    rows: Sequence[int] | None = ()
    layers: Collection[int] | None = None

    def attention(self, rows: Rows) -> None:
        """Rows it asked for, those of one layer in order of position."""

    def stream(self, layer: int, part: str, x: Tensor) -> None:
        """x (T, C) is being added to the residual stream: see `Tap.write`."""

    def memory(self) -> int:
        """Bytes that it will hold, known before the pass."""
        return 0


def show(rows: Rows, observers: Sequence[Observer]) -> None:
    """Gives each observer those of the rows that it asked for."""
    for observer in observers:
        theirs = rows.only(observer.rows)
        if len(theirs.queries) and (observer.layers is None or rows.layer in observer.layers):
            observer.attention(theirs)


class Recorder:
    """Watches one sequence, whole or step by step through a cache, and returns what the fused kernel would."""

    def __init__(self, *observers: Observer):
        self.observers = observers

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        assert q.shape[0] == 1, "a recorder watches one sequence"
        watching = [o for o in self.observers if o.layers is None or rule.layer in o.layers]
        T, S = q.shape[2], k.shape[2]
        queries = torch.arange(S - T, S, device=q.device) if mask is None else mask.queries[0]
        wanted = _wanted(watching, queries)
        if not len(wanted):
            return fused_attention(q, k, v, mask, rule)
        scene = _Scene.of(q, k, v, mask, rule)
        outputs = []
        for chosen in wanted.split(max(ROWS, BLOCK // scene.reach)):
            rows = scene.rows(queries, chosen)
            show(rows, watching)
            if len(wanted) == T:
                assert rows.values is not None
                outputs.append(rows.weights.to(v.dtype) @ rows.values)
        return torch.cat(outputs, dim=1)[None] if outputs else fused_attention(q, k, v, mask, rule)  # (1, H, T, D)

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        for observer in self.observers:
            observer.stream(layer, part, x[0])
        return x


class _Scene(NamedTuple):
    """One call of `attend` with its keys in order of position, whatever order the cache keeps them in."""

    q: Tensor  # (1, H, T, D)
    k: Tensor  # (1, H, S, D)
    v: Tensor  # (1, H, S, D)
    rule: Rule
    window: int | None
    first: int  # position of the first key

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> _Scene:
        first, window = 0, None
        if mask is not None:
            keys, window = mask.keys[0], mask.window
            first = int(keys[0])
            if first < 0 or not torch.equal(keys, torch.arange(first, first + len(keys), device=keys.device)):
                order = keys.argsort()  # a ring that has wrapped around, or is not yet full
                order = order[keys[order] >= 0]
                first, k, v = int(keys[order[0]]), k[:, :, order], v[:, :, order]
                if rule.bias is not None:
                    rule = rule._replace(bias=rule.bias[..., order])
        heads = q.shape[1]
        return cls(q, per_query_head(k, heads), per_query_head(v, heads), rule, window, first)

    @property
    def reach(self) -> int:
        """Weights that a row has, all heads together, or a few rows of a window."""
        H, S = self.k.shape[1:3]
        return H * (S if self.window is None else min(S, 2 * self.window))

    def rows(self, queries: Tensor, chosen: Tensor) -> Rows:
        """The weights of the chosen queries (indices into T) over the keys that they may read."""
        queries = queries[chosen]
        low = 0 if self.window is None else max(0, int(queries.min()) - self.window + 1 - self.first)
        high = int(queries.max()) + 1 - self.first
        keys = torch.arange(self.first + low, self.first + high, device=queries.device)
        rule = self.rule
        if rule.bias is not None:
            rule = rule._replace(bias=rule.bias[..., low:high])
        mask = Mask(queries[None], keys[None], self.window)
        q, k, v = self.q[:, :, chosen], self.k[:, :, low:high], self.v[0, :, low:high]
        return Rows(rule.layer, queries, self.first + low, attention_weights(q, k, mask, rule, 0, len(chosen))[0], v)


def _wanted(observers: Sequence[Observer], queries: Tensor) -> Tensor:
    """Which of the queries somebody wants to see, as indices."""
    if any(o.rows is None for o in observers):
        return torch.arange(len(queries), device=queries.device)
    wanted = torch.zeros_like(queries, dtype=torch.bool)
    for observer in observers:
        wanted |= _among(queries, observer.rows or ())
    return wanted.nonzero()[:, 0]


def _among(queries: Tensor, rows: Sequence[int]) -> Tensor:
    """Which positions are among the rows, as booleans."""
    if isinstance(rows, range) and rows.step == 1:
        return (queries >= rows.start) & (queries < rows.stop)
    return torch.isin(queries, torch.tensor(rows, dtype=queries.dtype, device=queries.device))
