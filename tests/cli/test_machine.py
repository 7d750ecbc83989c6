from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.machine import available_cores

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, ALL),
        ({"cpu.max": "99900000 100000\n"}, ALL),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, ALL),
        ({"cpu.max": "rubbish"}, ALL),
        ({}, ALL),
    ],
)
def test_a_quota_counts_as_well_as_the_cores(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_cores(tmp_path) == cores
