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


def said_and_taken(out: Path, cache: Path, *options: str) -> tuple[float, float]:
    """Bytes."""
    command = (sys.executable, "-m", "cli", "train", "--steps=4", "--threads=1", *options, "--out", str(out))
    with out.with_suffix(".said").open("w+") as said:
        run = subprocess.Popen(command, cwd=ROOT, stderr=said, env={**os.environ, "XDG_CACHE_HOME": str(cache)})
        _, status, usage = os.wait4(run.pid, 0)  # not the test's own memory, as with a fork
        run.returncode = os.waitstatus_to_exitcode(status)
    words = out.with_suffix(".said").read_text()
    assert run.returncode == 0, words
    found = re.search(r"peak memory about ([\d.]+) GB", words)
    assert found is not None
    return float(found[1]) * 1e9, usage.ru_maxrss * 1024


@pytest.mark.slow
@pytest.mark.parametrize("native", [False, True], ids=["torch", "kernels"])
@pytest.mark.parametrize("options", [("--batch=24",), ("--batch=8", "--micro-batch=4", "--optimizer=adamw")])
def test_peak_memory_is_what_was_said(tmp_path: Path, kernels: Path, options: tuple[str, ...], native: bool) -> None:
    text = write_stories(tmp_path / "stories.txt", 3000)
    cache = kernels if native else tmp_path
    said, taken = said_and_taken(tmp_path / "run", cache, str(text), "--preset=nano", *options)
    assert said == pytest.approx(taken, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("native", [False, True], ids=["torch", "kernels"])
def test_teachers_are_counted(tmp_path: Path, kernels: Path, native: bool) -> None:
    cache = kernels if native else tmp_path
    text, model = write_stories(tmp_path / "stories.txt", 3000), tmp_path / "model"
    said_and_taken(model, cache, str(text), "--preset=nano", "--batch=4")
    options = (f"--from={model}", f"--teacher={model}", f"--teacher={model}", "--context=256", "--batch=24")
    said, taken = said_and_taken(tmp_path / "run", cache, str(text), *options)
    assert said == pytest.approx(taken, rel=0.15)
