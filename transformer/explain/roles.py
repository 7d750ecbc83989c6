"""What kind of head is it? Scores of simple patterns, each beside what even attention would give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.config import Config
from transformer.recording import Observer, Rows

LOCAL = 8  # tokens back that still count as near
CLEAR = 0.3  # of its attention: from here on a head is named after the pattern


@dataclass(frozen=True)
class Pattern:
    """Which keys j a query i would read. `rank` decides between patterns that a head follows alike: what says
    more about a head comes first."""

    name: str
    letter: str
    reads: Callable[[Tensor, Tensor, Tensor], Tensor]  # ids (n,), i (R, 1), j (1, S) -> bool (R, S)


PATTERNS = (
    Pattern("induction", "I", lambda t, i, j: (j > 0) & (j < i) & (t[(j - 1).clamp(min=0)] == t[i])),
    Pattern("duplicate", "D", lambda t, i, j: (j < i) & (t[j] == t[i])),
    Pattern("previous", "P", lambda t, i, j: j == i - 1),
    Pattern("self", "C", lambda t, i, j: j == i),
    Pattern("local", "L", lambda t, i, j: (j < i - 1) & (j >= i - LOCAL)),
    Pattern("sink", "S", lambda t, i, j: (j == 0) & (i > 0)),
)


class Roles(Observer):
    """`scores` (patterns, L, H): the share of a head's attention that follows the pattern, over the rows in which
    the pattern has somewhere to look; `chance` (patterns,) is what reading all visible tokens alike would score.
    Both are nan where no row can tell."""

    def __init__(self, config: Config, ids: Sequence[int], rows: Sequence[int] | None = None):
        self.ids = torch.tensor(ids)
        self.rows: Sequence[int] = range(1, len(ids)) if rows is None else rows  # the first row has no choice
        self.windows = [layer.window or len(ids) for layer in config.layers]
        shape = (len(PATTERNS), len(config.layers))
        self._mass = torch.zeros(*shape, config.heads)
        self._even, self._rows = torch.zeros(shape), torch.zeros(shape)

    def attention(self, rows: Rows) -> None:
        t = self.ids.to(rows.queries.device)
        i, j = rows.queries[:, None], torch.arange(rows.keys.start, rows.keys.stop, device=t.device)[None]
        visible = (rows.queries + 1).clamp(max=self.windows[rows.layer])
        seen = (j <= i) & (j > i - self.windows[rows.layer])
        for number, pattern in enumerate(PATTERNS):
            targets = pattern.reads(t, i, j) & seen  # (R, S)
            count = targets.sum(1)
            self._mass[number, rows.layer] += (rows.weights * targets).sum((1, 2)).float().cpu()
            self._even[number, rows.layer] += float((count / visible).sum())
            self._rows[number, rows.layer] += float((count > 0).sum())

    @property
    def scores(self) -> Tensor:
        return self._mass / self._rows[..., None]

    @property
    def chance(self) -> Tensor:
        return self._even.sum(1) / self._rows.sum(1)


def kind(scores: Sequence[float], chance: Sequence[float]) -> int | None:
    """The pattern (its number) that a head is named after: the clearest that explains at least CLEAR of its
    attention and three times what chance would; the sink only if nothing else does."""
    clear = [
        n
        for n, (score, even) in enumerate(zip(scores, chance, strict=True))
        if score >= CLEAR and score >= min(3 * even, 0.9)
    ]
    sink = len(PATTERNS) - 1
    return max((n for n in clear if n != sink), key=lambda n: scores[n], default=sink if sink in clear else None)


def repeated(vocabulary: Sequence[int], prefix: Sequence[int], length: int, seed: int) -> tuple[list[int], range]:
    """Random different tokens, said twice, behind the tokens that every text begins with; and the rows of the
    second time, in which induction and duplication can be told."""
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(vocabulary), generator=random)[:length].tolist()
    once = [vocabulary[i] for i in order]
    start = len(prefix) + len(once)
    return [*prefix, *once, *once], range(start, start + len(once))
