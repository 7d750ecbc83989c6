"""A run's directory: itself a model directory of the newest state, with all that going on needs.

config.json model.safetensors tokenizer.json …    the model
checkpoints/step-N/ checkpoints/latest            see snapshot.py
data/                                             the encoded text, see corpus.py
lessons/                                          what teachers said of it, see lessons.py
run.toml metrics.jsonl loss.svg
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from safetensors import SafetensorError

from transformer.errors import EnvironmentFailed, InputError
from transformer.schedule import Place
from weights.base import Base, base_in
from weights.checkpoint import load_model, open_checkpoint, save_model
from weights.durable import reason, replace_file, sync, trouble
from weights.plan import Plan, dump_plan, load_plan
from weights.snapshot import collect, newest_valid, prune, save_snapshot
from weights.strict_json import read_json

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.model import Transformer

LOCK = ".lock"
BESIDE = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


class Run:
    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.data = path / "data"
        self.lessons = path / "lessons"
        self.saved: int | None = None  # the step of the newest checkpoint

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process writes a run at a time. The lock goes with the process, however it ends."""
        with trouble(self.path):
            file = self._locked()
        with file:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            try:
                yield
            finally:
                with suppress(OSError):
                    (self.path / LOCK).unlink()
                    self.path.rmdir()  # if nothing came of the run

    def _locked(self) -> TextIO:
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK).open("a+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path / LOCK)):
                    return file
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                file.close()
                raise EnvironmentFailed(f"{self.path}: {holder} is writing this run") from None
            except FileNotFoundError:
                pass
            file.close()  # the holder before has removed it meanwhile

    def exists(self) -> bool:
        return (self.path / "run.toml").exists()

    def plan(self) -> Plan:
        if not self.exists():
            raise InputError(f"{self.path}: no run to go on with: there is no run.toml")
        return load_plan(self.path / "run.toml")

    def write_plan(self, plan: Plan) -> None:
        """Comes last when a run is made: with it, the run exists."""
        self.write("run.toml", dump_plan(plan))

    def prepare(self, base: Base, encode: Callable[[Path], None]) -> None:
        """Writes what stays the same all through a run. `encode` fills the directory it is given with the text."""
        new = self.path / "data.tmp"
        with trouble(self.path):
            for leftover in (new, self.data, self.lessons, self.checkpoints):
                shutil.rmtree(leftover, ignore_errors=True)
            new.mkdir()
            try:
                encode(new)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
            for path in new.iterdir():
                sync(path)
            for name, contents in base.files.items():
                text = contents if isinstance(contents, str) else json.dumps(contents, indent=2) + "\n"
                replace_file(self.path / name, text.encode())
            new.rename(self.data)
            sync(self.path)

    def base(self) -> Base:
        return base_in(self.path)

    def save(self, model: Transformer, memory: dict[str, Tensor], at: Place, keep: int) -> Path:
        """A whole checkpoint; then the run's own model is that of the checkpoint."""
        values = read_json(self.path / "config.json")

        def write(directory: Path) -> None:
            from safetensors.torch import save_file

            save_model(model, directory, values)
            save_file(memory, directory / "optimizer.safetensors")
            (directory / "state.json").write_text(json.dumps(asdict(at)) + "\n")
            for name in BESIDE:
                if (self.path / name).exists():
                    shutil.copyfile(self.path / name, directory / name)

        try:
            saved = save_snapshot(self.checkpoints, at.step, write)
            self._publish(saved)
        except (OSError, SafetensorError) as error:
            before = "no checkpoint was written before" if self.saved is None else f"that of step {self.saved} is whole"
            raise EnvironmentFailed(
                f"{self.checkpoints}: step {at.step} was not saved: {reason(error)}; {before}"
            ) from None
        self.saved = at.step
        with trouble(self.checkpoints):
            prune(self.checkpoints, keep)
        return saved

    def _publish(self, saved: Path) -> None:
        for name in ("config.json", "model.safetensors"):
            new = self.path / f"{name}.tmp"
            new.unlink(missing_ok=True)
            try:
                os.link(saved / name, new)
            except OSError:  # a file system without links
                shutil.copyfile(saved / name, new)
            new.replace(self.path / name)
        sync(self.path)

    def restore(self, warn: Callable[[str], None]) -> tuple[Transformer, dict[str, Tensor], Place] | None:
        """The newest state that is as it was written, or nothing if none was saved yet."""
        import torch
        from safetensors.torch import load_file

        directory = newest_valid(self.checkpoints, warn)
        if directory is None:
            return None
        model = load_model(open_checkpoint(directory), torch.float32)
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()  # out of the mapped file
        at = Place(**read_json(directory / "state.json"))
        self.saved = at.step
        return model.requires_grad_(True), load_file(directory / "optimizer.safetensors"), at

    def write(self, name: str, text: str) -> None:
        with trouble(self.path):
            replace_file(self.path / name, text.encode())

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.path / "metrics.jsonl")

    def collect(self) -> None:
        """Clears away what a killed process left half done."""
        collect(self.checkpoints)
        for leftover in self.path.glob("*.tmp"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


class Metrics:
    """metrics.jsonl: a line a step, and one for each reading of the validation text."""

    def __init__(self, path: Path, step: int):
        """Lines that a resumed run is going to write again are cut off."""
        rows = read_metrics(path)
        kept = [row for row in rows if row["step"] < step or (row["step"] == step and "loss" in row)]
        with trouble(path):
            replace_file(path, "".join(json.dumps(row) + "\n" for row in kept).encode())
        self.path = path

    def write(self, row: dict[str, Any]) -> None:
        with trouble(self.path), self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; a last line that a crash cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows
