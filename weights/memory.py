"""Where weights live: in huge pages where the system has them, as they are or in eight bits.

A token reads every weight once. In pages of 4 kB the processor spends a fifth of that time on looking them up.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from transformer.int8 import Codes
    from transformer.pieces import Piece

SLAB = 1 << 26  # bytes taken from the system at once; what is never written costs nothing
ALIGNMENT = 64


class Room:
    """Gives out memory for tensors, one behind the other."""

    def __init__(self, device: str):
        self.device, self.at = device, 0
        self.slab: mmap.mmap | None = None
        self.huge = device == "cpu" and hasattr(mmap, "MADV_HUGEPAGE")

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        import torch

        count = math.prod(shape)
        if not self.huge or count == 0:
            return torch.empty(shape, dtype=dtype, device=self.device)
        start, size = -(-self.at // ALIGNMENT) * ALIGNMENT, count * dtype.itemsize
        if self.slab is None or start + size > len(self.slab):
            self.slab = mmap.mmap(-1, max(SLAB, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.slab.madvise(mmap.MADV_HUGEPAGE)
            start = 0
        self.at = start + size
        return torch.frombuffer(self.slab, dtype=dtype, count=count, offset=start).view(shape)


@contextmanager
def one_thread() -> Iterator[None]:
    """Loading is many short operations: threads that wait for each other at every one of them are slower than one
    thread as soon as anything else runs on the machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Plain:
    """A parameter as the decoder holds it, filled piece by piece, some rows at a time."""

    def __init__(self, room: Room, shape: tuple[int, ...], dtype: torch.dtype):
        self.tensor = room.empty(shape, dtype)

    def write(self, piece: Piece, start: int, rows: Tensor) -> None:
        piece.of(self.tensor)[start : start + len(rows)] = rows


class EightBits:
    """A matrix of codes, filled piece by piece: it is never held in full precision."""

    def __init__(self, room: Room, shape: tuple[int, ...], groups: int = 1, offset: bool = False):
        import torch

        from transformer.int8 import Codes

        scales = (shape[0], groups)
        offsets = room.empty(scales, torch.float32).zero_() if offset else None  # for pieces without
        self.matrix = Codes(room.empty(shape, torch.int8), room.empty(scales, torch.float32), offsets)

    def write(self, piece: Piece, start: int, rows: Tensor) -> None:
        """Numbers, which become codes as they come in."""
        from transformer.int8 import quantize_rows

        stop = start + len(rows)
        codes, scales, _ = quantize_rows(rows.float())
        piece.of(self.matrix.codes)[start:stop], piece.of(self.matrix.scales)[start:stop] = codes, scales

    def keep(self, piece: Piece, matrix: Codes) -> None:
        """Codes as a file has them, perhaps in larger groups."""
        for home, values in zip(self.matrix, matrix, strict=True):
            if home is not None and values is not None:
                piece.of(home).copy_(values.repeat_interleave(home.shape[1] // values.shape[1], dim=1))
