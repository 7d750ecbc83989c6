from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.machine import available_cores

ALL = len(os.sched_getaffinity(0))
TOP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({f"{TOP}/cpu.max": "50000 100000\n"}, 1),
        ({f"{TOP}/cpu.max": "max 100000\n"}, ALL),
        ({f"{TOP}/cpu.max": "99900000 100000\n"}, ALL),
        ({"proc/self/cgroup": "0::/a/b\n", f"{TOP}/a/cpu.max": "100000 100000", f"{TOP}/a/b/cpu.max": "max 1"}, 1),
        ({"proc/self/cgroup": "0::/a/b\n", f"{TOP}/a/b/cpu.max": "70000 100000"}, 1),
        ({f"{TOP}/cpu/cpu.cfs_quota_us": "100000", f"{TOP}/cpu/cpu.cfs_period_us": "100000"}, 1),
        ({f"{TOP}/cpu/cpu.cfs_quota_us": "-1", f"{TOP}/cpu/cpu.cfs_period_us": "100000"}, ALL),
        ({f"{TOP}/cpu.max": "rubbish"}, ALL),
        ({}, ALL),
    ],
)
def test_a_quota_counts_as_well_as_the_cores(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_cores(tmp_path) == cores
