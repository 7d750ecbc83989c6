"""How many cores and how much memory this process may really use: a container may grant less than the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

UNLIMITED = 1 << 20


def available_cores(root: Path = Path("/")) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _quota(root)))


def _quota(root: Path) -> int:
    """Whole cores of the CPU quota, rounded up: the smallest of our own control group and those above it."""
    top = root / "sys/fs/cgroup"
    own = top / _own_group(root)
    quotas = [_version_2(group) for group in (own, *own.parents) if group.is_relative_to(top)]
    return min(*quotas, _version_1(top / "cpu"), UNLIMITED)


def _own_group(root: Path) -> str:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")


def _version_2(group: Path) -> int:
    try:
        quota, period = (group / "cpu.max").read_text().split()[:2]
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):  # no such file, or "max"
        return UNLIMITED


def _version_1(group: Path) -> int:
    try:
        quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return math.ceil(quota / period) if quota > 0 else UNLIMITED
    except (OSError, ValueError):
        return UNLIMITED


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that can still be had without swapping: the machine's, or what the control groups leave."""
    top = root / "sys/fs/cgroup"
    own = top / _own_group(root)
    left = [_memory_left(group) for group in (own, *own.parents) if group.is_relative_to(top)]
    return min(_machine_memory(root), *left)


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


def set_threads(threads: int | None) -> int:
    import torch

    count = threads or available_cores()
    torch.set_num_threads(count)
    return count
