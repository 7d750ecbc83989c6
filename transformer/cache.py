"""The KV cache: what attention has seen, kept so that no token is computed twice.

Passed to the model as an argument and written in place. Every row of the batch has its own length, so ragged
prompts share one cache without padding. A sliding-window layer keeps its window plus the largest step in a ring.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from transformer.config import Config
from transformer.mask import Mask, causal

BLOCK = 256  # capacity grows in multiples of this


class KVCache:
    def __init__(
        self,
        config: Config,
        rows: int = 1,
        *,
        capacity: int = BLOCK,
        step: int = 512,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        """`step` is the most tokens a pass may add; together with a layer's window it sizes the ring."""
        self.step, self.capacity = step, 0
        self.windows = [layer.window for layer in config.layers]
        self.lengths = torch.zeros(rows, dtype=torch.int64)  # on the CPU: read in Python at every pass
        self.horizons = torch.zeros(rows, dtype=torch.int64)  # how long each row is going to be
        self.peaks = torch.zeros(rows, dtype=torch.int64)  # how long each has been: what came before may be gone
        shape = (rows, config.kv_heads, 0, config.head_dim)
        self.keys = [torch.empty(shape, dtype=dtype, device=device) for _ in config.layers]
        self.values = [torch.empty(shape, dtype=dtype, device=device) for _ in config.layers]
        self.reserve(capacity)

    def reserve(self, capacity: int) -> None:
        """Makes room for `capacity` tokens a row."""
        self.capacity = capacity = max(self.capacity, -(-capacity // BLOCK) * BLOCK)
        for layer, window in enumerate(self.windows):
            wanted = capacity if window is None else min(capacity, window + self.step)
            if wanted > self.keys[layer].shape[2]:
                self.keys[layer] = self._grown(self.keys[layer], wanted)
                self.values[layer] = self._grown(self.values[layer], wanted)

    def _grown(self, old: Tensor, capacity: int) -> Tensor:
        # Zeros, for a kernel multiplies masked slots as well, and nothing times NaN is NaN.
        new = old.new_zeros(old.shape[0], old.shape[1], capacity, old.shape[3])
        for row, length in enumerate(self.lengths.tolist()):  # one by one: what is never written costs no memory
            filled = min(length, old.shape[2])  # a ring grows only before it first wraps
            new[row, :, :filled] = old[row, :, :filled]
        return new

    def rows(self, start: int, stop: int) -> KVCache:
        """Some rows, sharing their memory with the whole. Reserve first: a part cannot grow."""
        part = object.__new__(KVCache)
        part.step, part.capacity, part.windows = self.step, self.capacity, self.windows
        part.lengths, part.horizons = self.lengths[start:stop], self.horizons[start:stop]
        part.peaks = self.peaks[start:stop]
        part.keys = [k[start:stop] for k in self.keys]
        part.values = [v[start:stop] for v in self.values]
        return part

    def begin(self, new: int) -> Step:
        """A pass of `new` tokens a row begins."""
        return Step(self, new)

    def advance(self, new: int) -> None:
        """The pass is over: its `new` tokens count from now on."""
        self.lengths += new
        self.peaks.clamp_(min=self.lengths)

    def crop(self, length: int | Tensor) -> None:
        """Forgets everything from position `length` on; a tensor has one for each row."""
        back = int((self.peaks - length).max())
        if back > self.step and any(self.windows):
            raise ValueError(f"cannot go back {back} tokens: a window keeps only {self.step} beyond itself")
        self.lengths.clamp_(max=length)  # in place: rows of a larger cache share them

    def move(self, source: int, target: int) -> None:
        """Row `target` becomes a copy of row `source`."""
        length = int(self.lengths[source])  # a ring that has wrapped is shorter than that
        for memory in (*self.keys, *self.values):
            memory[target, :, :length] = memory[source, :, :length]
        self.lengths[target] = self.lengths[source]
        self.horizons[target], self.peaks[target] = self.horizons[source], self.peaks[source]

    def reset(self) -> None:
        self.lengths.zero_()
        self.peaks.zero_()


class Step:
    """Where the tokens of one pass stand and are kept: worked out once, for all layers."""

    def __init__(self, cache: KVCache, new: int):
        self.cache, self.new, self.device = cache, new, cache.keys[0].device
        lengths = cache.lengths.tolist()
        self.first, self.longest, self.even = lengths[0], max(lengths), len(set(lengths)) == 1
        self.horizons = [max(n + new, h) for n, h in zip(lengths, cache.horizons.tolist(), strict=True)]
        starts = cache.lengths[:1] if self.even else cache.lengths
        # (B, new), or (1, new) if all rows agree
        self.positions = starts.to(self.device)[:, None] + torch.arange(new, device=self.device)

    @cached_property
    def slots(self) -> Tensor:
        """Where each new token is kept in layers without a window, row after row: (B · new,)"""
        return (self.cache.lengths[:, None] + torch.arange(self.new)).flatten()

    def mask(self, window: int | None) -> Mask | None:
        """What the new tokens may read in the layers of that window; None if all that `update` gives."""
        new, even, longest = self.new, self.even, self.longest
        if even and longest == 0:
            return causal(new, window, self.device) if new > 1 else None
        if even and new == 1 and (window is None or longest < window):
            return None
        capacity = self.cache.keys[self.cache.windows.index(window)].shape[2]
        slots = torch.arange(min(longest + new, capacity))
        last = (self.cache.lengths[:1] if even else self.cache.lengths)[:, None] + new - 1
        keys = last - (last - slots) % capacity  # the newest position that falls on each slot; < 0 if none
        return Mask(self.positions, keys.to(self.device), window)

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes new keys and values (B, K, T, D) behind each row's own; gives all that is kept: (B, K, S, D)"""
        cache, new = self.cache, self.new
        keys, values = cache.keys[layer], cache.values[layer]
        capacity = keys.shape[2]
        start = self.first % capacity if cache.windows[layer] else self.first
        if self.even and start + new <= capacity:
            keys[:, :, start : start + new] = k
            values[:, :, start : start + new] = v
        else:
            slots = (cache.lengths[:, None] + torch.arange(new)) % capacity
            rows = torch.arange(len(cache.lengths))[:, None]
            keys[rows, :, slots] = k.transpose(1, 2)
            values[rows, :, slots] = v.transpose(1, 2)
        filled = min(self.longest + new, capacity)
        return keys[:, :, :filled], values[:, :, :filled]
