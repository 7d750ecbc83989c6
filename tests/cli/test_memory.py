from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.memory import available_memory, resident_bytes

TOP = "sys/fs/cgroup"
MACHINE = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:       8000 kB\n"}


def limit(group: str, most: str, used: int, cached: int) -> dict[str, str]:
    return {
        f"{group}/memory.max": most,
        f"{group}/memory.current": str(used),
        f"{group}/memory.stat": f"anon 5\nfile {cached}\n",
    }


@pytest.mark.parametrize(
    ("files", "available"),
    [
        (MACHINE, 8000 * 1024),
        (MACHINE | limit(TOP, "max", 100, 0), 8000 * 1024),
        (MACHINE | limit(TOP, "5000", 3000, 1000), 3000),
        (MACHINE | limit(TOP, "5000", 9000, 1000), 0),
        (MACHINE | {"proc/self/cgroup": "0::/a/b\n"} | limit(f"{TOP}/a", "7000", 1000, 0), 6000),
        ({}, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    ],
)
def test_what_a_container_leaves(tmp_path: Path, files: dict[str, str], available: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_memory(tmp_path) == available


def test_this_process_holds_something() -> None:
    assert 1 << 20 < resident_bytes() < 1 << 40
