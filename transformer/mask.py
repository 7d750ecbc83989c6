"""Who may read whom, kept as positions so that no n² matrix exists until a kernel asks for some of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Mask:
    """Query i reads key j when i - window < j <= i. Positions, -1 for an empty slot of a cache."""

    queries: Tensor  # (B or 1, T)
    keys: Tensor  # (B or 1, S)
    window: int | None
    plain: bool = False  # the keys are the queries: nothing but the lower triangle

    def rows(self, start: int, stop: int) -> Tensor:
        """True where a key may be read, for some of the queries: (B or 1, 1, stop - start, S)"""
        i, j = self.queries[:, None, start:stop, None], self.keys[:, None, None, :]
        seen = (j >= 0) & (j <= i)
        return seen if self.window is None else seen & (j > i - self.window)

    @cached_property
    def whole(self) -> Tensor:
        """All rows at once, made once for every layer that shares this mask: (B or 1, 1, T, S)"""
        return self.rows(0, self.queries.shape[1])


def causal(length: int, window: int | None, device: torch.device) -> Mask:
    """The mask of a sequence seen whole."""
    positions = torch.arange(length, device=device)[None]
    return Mask(positions, positions, window, plain=window is None or length <= window)
