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

BLOCK = 1 << 22  # attention weights in the open at once: 16 MB of fp32


class Rows(NamedTuple):
    """Some rows of one layer's attention. The keys stand side by side from `first` on; S ends at the last one
    that any of these rows may read."""

    layer: int
    queries: Tensor  # (R,) positions
    first: int
    weights: Tensor  # (H, R, S), 0 exactly where masked
    values: Tensor | None = None  # (K, S, D); None once pieces were merged into words

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
        scene = _Scene.of(q, k, v, mask, rule)
        wanted = _wanted(watching, scene.queries)
        seen = self._show(scene, wanted, watching) if len(wanted) else []
        if len(wanted) < len(scene.queries):
            return fused_attention(q, k, v, mask, rule)
        return torch.cat(seen, dim=1)[None]  # (1, H, T, D)

    def _show(self, scene: _Scene, wanted: Tensor, watching: Sequence[Observer]) -> list[Tensor]:
        outputs = []
        heads, keys = scene.q.shape[1], scene.k.shape[2]
        for chosen in wanted.split(max(1, BLOCK // (heads * keys))):
            rows = scene.rows(chosen)
            show(rows, watching)
            if len(wanted) == len(scene.queries):
                assert rows.values is not None
                outputs.append(rows.weights.to(rows.values.dtype) @ per_query_head(rows.values[None], heads)[0])
        return outputs

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        for observer in self.observers:
            observer.stream(layer, part, x[0])
        return x


class _Scene(NamedTuple):
    """One call of `attend` with its keys in order of position, whatever order the cache keeps them in."""

    q: Tensor  # (1, H, T, D)
    k: Tensor  # (1, K, S, D)
    v: Tensor  # (1, K, S, D)
    rule: Rule
    window: int | None
    queries: Tensor  # (T,) positions
    first: int  # position of the first key

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> _Scene:
        T, S = q.shape[2], k.shape[2]
        positions = torch.arange(S, device=q.device)
        if mask is None:  # the queries are the last tokens, and each may read every key
            return cls(q, k, v, rule, None, positions[S - T :], 0)
        queries, keys = mask.queries[0], mask.keys[0]
        if not torch.equal(keys, positions + keys[0]) or int(keys[0]) < 0:  # a ring that has wrapped around
            order = keys.argsort()
            order = order[keys[order] >= 0]
            keys, k, v = keys[order], k[:, :, order], v[:, :, order]
            if rule.bias is not None:
                rule = rule._replace(bias=rule.bias[..., order])
        return cls(q, k, v, rule, mask.window, queries, int(keys[0]))

    def rows(self, chosen: Tensor) -> Rows:
        """The weights of the chosen queries (indices into T) over the keys that they may read."""
        queries = self.queries[chosen]
        low = 0 if self.window is None else max(0, int(queries.min()) - self.window + 1 - self.first)
        high = int(queries.max()) + 1 - self.first
        keys = torch.arange(self.first + low, self.first + high, device=queries.device)
        rule = self.rule
        if rule.bias is not None:
            rule = rule._replace(bias=rule.bias[..., low:high])
        weights = attention_weights(
            self.q[:, :, chosen],
            self.k[:, :, low:high],
            Mask(queries[None], keys[None], self.window),
            rule,
            0,
            len(chosen),
        )
        return Rows(rule.layer, queries, self.first + low, weights[0], self.v[0, :, low:high])


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
