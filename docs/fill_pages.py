"""Fills in, or checks, what the commands of docs/explain.md and docs/fable.md print.

    python docs/fill_pages.py --smollm2 DIRECTORY --run RUN           writes both anew
    python docs/fill_pages.py --smollm2 DIRECTORY --run RUN --check   exits 1 if anything drifted

Every ```console block begins with `$ tfm ...`; what follows is the output of that line, run in a shell of its own.
DIRECTORY holds SmolLM2-135M-Instruct (no GGUF file), RUN the training run that the page
describes; a command without either asks the model in the package. A block whose model is not there stays as it is,
and is said to. Sampled text is not checked: one last digit can turn it into another story.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "explain.md", ROOT / "docs" / "fable.md")
EMBEDDED = ROOT / "weights" / "fable" / "config.json"
BLOCK = re.compile(r"^```console\n\$ (?P<command>.*)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE)
PENDING = re.compile(r"<!-- the embedded model:\n(.*?)-->\n", re.DOTALL)  # shown once there is one
NUMBER = re.compile(r"[+−-]?\d*\.?\d+(?:e[+-]?\d+)?")
LAST_DIGITS = 0.025  # two machines may round the last digit shown differently


def run(command: str, home: Path) -> str:
    environment = {**os.environ, "TFM_PATH": str(home / "models"), "COLUMNS": "100", "NO_COLOR": "1"}
    environment["PATH"] = f"{home / 'bin'}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=home, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True,
    )  # fmt: skip
    if done.returncode not in (0, 141):
        raise SystemExit(f"{command}\n{done.stderr.decode()}")
    return done.stdout.decode()


def furnish(home: Path, smollm2: Path | None, training: Path | None) -> set[str]:
    """A place where `tfm`, `-m smollm2` and `runs/first` mean what the page says; what of it there is."""
    for folder in ("bin", "models", "runs"):
        (home / folder).mkdir()
    shim = home / "bin" / "tfm"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m cli "$@"\n')
    shim.chmod(0o755)
    there = {"fable"} if EMBEDDED.exists() else set()
    for name, target, place in (("smollm2", smollm2, "models/smollm2"), ("runs/first", training, "runs/first")):
        if target is not None:
            (home / place).symlink_to(target.resolve())
            there.add(name)
    return there


def model_of(command: str) -> str:
    return next((name for name in ("smollm2", "runs/first") if name in command), "fable")


def drifted(old: str, new: str) -> bool:
    """Whether two outputs differ by more than the last digits of their numbers, and the bars drawn from them."""
    return _words(old) != _words(new) or any(
        abs(a - b) > LAST_DIGITS * max(1.0, abs(a)) for a, b in zip(_numbers(old), _numbers(new), strict=True)
    )


def _words(text: str) -> list[list[str]]:
    plain = re.sub("[▏▎▍▌▋▊▉█─]+", " ", text)
    return [line.split() for line in NUMBER.sub("0", plain).splitlines()]


def _numbers(text: str) -> list[float]:
    return [float(number.replace("−", "-")) for number in NUMBER.findall(text)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smollm2", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        there = furnish(Path(folder), given.smollm2, given.run)
        changed = sum(filled(page, Path(folder), there, given.check) for page in PAGES)
    return 1 if given.check and changed else 0


def filled(path: Path, home: Path, there: set[str], check: bool) -> int:
    """Runs the commands of a page and, unless it is only to be checked, writes it. How many print something else."""
    page, changed = path.read_text(encoding="utf-8"), 0
    if check:
        page = PENDING.sub("", page)
    elif "fable" in there:
        page = PENDING.sub(r"\1", page)

    def fresh(block: re.Match[str]) -> str:
        nonlocal changed
        command, old = block["command"], block["output"]
        if check and command.startswith("tfm generate"):
            return block[0]
        if (model := model_of(command)) not in there:
            print(f"left as it is, no {model}: {command}", file=sys.stderr)
            return block[0]
        new = run(command, home)
        if not drifted(old, new):
            return block[0]
        changed += 1
        print(f"{'drifted' if check else 'new'}: {command}", file=sys.stderr, flush=True)
        return f"```console\n$ {command}\n{new}```"

    page = BLOCK.sub(fresh, page)
    if not check:
        path.write_text(page, encoding="utf-8")
    return changed


if __name__ == "__main__":
    sys.exit(main())
