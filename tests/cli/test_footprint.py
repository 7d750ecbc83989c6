"""The memory that a run says it will take, and what it then takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.text import write_stories

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("native", [False, True], ids=["torch", "kernels"])
@pytest.mark.parametrize("options", [("--batch=24",), ("--batch=8", "--micro-batch=4", "--optimizer=adamw")])
def test_peak_memory_is_what_was_said(tmp_path: Path, kernels: Path, options: tuple[str, ...], native: bool) -> None:
    text = write_stories(tmp_path / "stories.txt", 3000)
    command = (sys.executable, "-m", "cli", "train", str(text), "--preset=nano", "--steps=4", "--threads=1", *options)
    with (tmp_path / "said").open("w+") as said:
        cache = {"XDG_CACHE_HOME": str(kernels if native else tmp_path)}
        run = subprocess.Popen(
            (*command, "--out", str(tmp_path / "run")), cwd=ROOT, stderr=said, env={**os.environ, **cache}
        )
        _, status, usage = os.wait4(run.pid, 0)  # not the test's own memory, as with a fork
        run.returncode = os.waitstatus_to_exitcode(status)
    words = (tmp_path / "said").read_text()
    assert run.returncode == 0, words
    found = re.search(r"peak memory about ([\d.]+) GB", words)
    assert found is not None
    assert float(found[1]) * 1e9 == pytest.approx(usage.ru_maxrss * 1024, rel=0.15)
