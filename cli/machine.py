"""How many cores this process may really use: torch counts the machine's, a container may grant fewer."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _quota(cgroup)))


def _quota(cgroup: Path) -> int:
    """Whole cores of the cgroup's CPU quota, rounded up; a huge number if there is none."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()[:2]
        else:
            quota = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else 1 << 20
    except (OSError, ValueError):
        return 1 << 20


def set_threads(threads: int | None) -> int:
    import torch

    count = threads or available_cores()
    torch.set_num_threads(count)
    return count
