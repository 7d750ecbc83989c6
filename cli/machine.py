"""How many cores this process may really use: a container may grant fewer than the machine has."""

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
    return min(*map(_version_2, control_groups(root)), _version_1(root / "sys/fs/cgroup/cpu"), UNLIMITED)


def control_groups(root: Path) -> list[Path]:
    """Our own and those above it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    name = next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")
    top = root / "sys/fs/cgroup"
    return [group for group in (top / name, *(top / name).parents) if group.is_relative_to(top)]


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


def set_threads(threads: int | None) -> int:
    import torch

    count = threads or available_cores()
    torch.set_num_threads(count)
    return count
