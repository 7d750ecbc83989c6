"""Checkpoints of a run: `checkpoints/step-N/`, complete or not there at all.

A checkpoint is written to `step-N.tmp/`, every file brought to the disk and entered in a manifest with its size
and SHA-256; then the directory is renamed, and `latest` made to name it. Nothing older is touched before.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from transformer.errors import InputError
from weights.durable import replace_file, sync
from weights.strict_json import read_json

MANIFEST = "manifest.json"
STEP = re.compile(r"step-(\d{1,15})")
MEMORY = ("optimizer.safetensors", "state.json")  # what only resuming needs


def save_snapshot(checkpoints: Path, step: int, write: Callable[[Path], None]) -> Path:
    """`write` fills the directory it is given."""
    checkpoints.mkdir(exist_ok=True)
    final = checkpoints / f"step-{step}"
    new = checkpoints / f"step-{step}.tmp"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        write(new)
        seal(new)
        if final.exists():  # from before a resume that fell back behind it: not what this run computed
            shutil.rmtree(final)
        new.rename(final)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    sync(checkpoints)
    replace_file(checkpoints / "latest", f"{final.name}\n".encode())
    return final


def seal(directory: Path) -> None:
    """Brings all files to the disk and lists them in the manifest, which comes last."""
    table = {}
    for path in sorted(p for p in directory.iterdir() if p.name != MANIFEST):
        sync(path)
        table[path.name] = {"size": path.stat().st_size, "sha256": digest(path)}
    replace_file(directory / MANIFEST, (json.dumps(table, indent=1) + "\n").encode())


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fault(directory: Path) -> str | None:
    """What is wrong with a checkpoint, if anything is."""
    try:
        table = read_json(directory / MANIFEST)
        for name, entry in table.items():
            size = (directory / name).stat().st_size
            if size != entry["size"]:
                return f"{directory / name} has {size} bytes, its manifest says {entry['size']}"
            if digest(directory / name) != entry["sha256"]:
                return f"{directory / name} is not what was written: its SHA-256 differs from the manifest's"
        missing = [name for name in MEMORY if name not in table]
        return f"{directory} has no {missing[0]}" if missing else None
    except (InputError, OSError, TypeError, KeyError) as error:
        return f"{directory}: {error}"


def steps(checkpoints: Path) -> list[int]:
    """The steps there are checkpoints of, newest first."""
    if not checkpoints.is_dir():
        return []
    found = (STEP.fullmatch(path.name) for path in checkpoints.iterdir())
    return sorted((int(match[1]) for match in found if match), reverse=True)


def newest_valid(checkpoints: Path, warn: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that can be resumed and is as it was written; the faults of newer ones are told."""
    for step in steps(checkpoints):
        directory = checkpoints / f"step-{step}"
        if not (directory / "optimizer.safetensors").exists():
            continue
        problem = fault(directory)
        if problem is None:
            return directory
        warn(problem)
    return None


def collect(checkpoints: Path) -> None:
    """Clears away what a killed process left half done."""
    if checkpoints.is_dir():
        for path in list(checkpoints.iterdir()):
            if path.name.endswith(".tmp"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def prune(checkpoints: Path, keep: int) -> None:
    """The last `keep` stay whole. Of the older ones the first in every doubling of steps keeps its weights."""
    older = steps(checkpoints)[keep:]
    for step in older:
        directory = checkpoints / f"step-{step}"
        if step != min(s for s in older if s.bit_length() == step.bit_length()):
            _remove(directory)
        elif (directory / MEMORY[0]).exists():
            _forget(directory)


def _forget(directory: Path) -> None:
    table = read_json(directory / MANIFEST)
    kept = {name: entry for name, entry in table.items() if name not in MEMORY}
    replace_file(directory / MANIFEST, (json.dumps(kept, indent=1) + "\n").encode())
    for name in MEMORY:
        (directory / name).unlink(missing_ok=True)


def _remove(directory: Path) -> None:
    """By another name first: half a checkpoint must not look like one."""
    gone = directory.with_name(directory.name + ".tmp")
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(directory, gone)
    shutil.rmtree(gone)
