"""docs/explain.md: its commands are commands of tfm, its tables fit, and what needs no download does not drift."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer
from rich.cells import cell_len

from cli.main import app

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "docs" / "fill_pages.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fill_pages", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()
BLOCKS = list(script.BLOCK.finditer((ROOT / "docs" / "explain.md").read_text(encoding="utf-8")))


def arguments(command: str) -> list[str]:
    """Of tfm, without what its output is piped into."""
    words = shlex.split(command)
    return words[: words.index("|")] if "|" in words else words


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["command"])
def test_a_command_is_one_of_tfm(block: re.Match[str]) -> None:
    program, name, *rest = arguments(block["command"])
    assert program == "tfm"
    typer.main.get_command(app).commands[name].make_context(name, rest)


def test_every_view_is_shown() -> None:
    shown = " ".join(block["command"] for block in BLOCKS)
    views = (
        "--layer --head --token --by-hand --roles --weights --lens --attribute --ablate --diff --vs --generated --at"
    )
    for view in (*views.split(), "--across", "--verify", "--words"):
        assert f"{view} " in f"{shown} ", view


def test_what_is_printed_fits_a_terminal() -> None:
    for block in BLOCKS:
        assert all(cell_len(line) <= 100 for line in block["output"].splitlines()), block["command"]


def test_what_the_model_in_the_package_prints_has_not_drifted() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_drift_is_words_or_more_than_a_last_digit() -> None:
    assert not script.drifted("it .75 ████▍ −1.01\n", "it  .76 ████▌ −1.02\n")
    assert script.drifted("it .75\n", "it .79\n") and script.drifted("it .75\n", "is .75\n")
    assert script.drifted("a b\n", "a\nb\n")
