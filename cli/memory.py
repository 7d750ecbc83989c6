"""The memory that this process has, and that it may still have."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from cli.machine import control_groups

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Training frees and asks again for the same large tensors in every step. By default glibc gives each back to
    the kernel, and getting it again costs a page fault every 4 KB: a sixth of all time. Elsewhere this does nothing."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, NEVER)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)


def resident_bytes() -> int:
    """What the process holds now, where the system tells."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can still be had without swapping: the machine's, or what the control groups leave."""
    return min(_machine_memory(root), *map(_memory_left, control_groups(root)))


def _machine_memory(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: all there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _memory_left(group: Path) -> int:
    """The page cache counts as used but is given back, so only what is certainly taken is subtracted."""
    try:
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(stat.get("file", 0)))
    except (OSError, ValueError):  # no such file, or "max"
        return 1 << 62
