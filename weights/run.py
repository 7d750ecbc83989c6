"""A run's directory: itself a model directory of the newest state, with all that going on needs.

config.json model.safetensors tokenizer.json …    the model
checkpoints/step-N/ checkpoints/latest            see snapshot.py
data/                                             the encoded text, see corpus.py
run.toml metrics.jsonl loss.svg
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from tokenizers import Tokenizer

from transformer.errors import EnvironmentFailed
from transformer.train import Place
from weights.checkpoint import load_model, open_checkpoint, save_model
from weights.corpus import Corpus, open_corpus
from weights.documents import SEPARATOR
from weights.durable import replace_file, sync
from weights.families.registry import write_config
from weights.plan import Plan, dump_plan, load_plan
from weights.snapshot import collect, newest_valid, prune, save_snapshot
from weights.strict_json import read_json

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.config import Config
    from transformer.model import Transformer

MODEL_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


class Run:
    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.saved: int | None = None  # the step of the newest checkpoint

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process writes a run at a time. The lock goes with the process, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise EnvironmentFailed(f"{self.path}: {holder} is writing this run") from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            try:
                yield
            finally:
                with suppress(OSError):
                    file.truncate(0)

    def exists(self) -> bool:
        return (self.path / "run.toml").exists()

    def plan(self) -> Plan:
        return load_plan(self.path / "run.toml")

    def write_plan(self, plan: Plan) -> None:
        replace_file(self.path / "run.toml", dump_plan(plan).encode())

    def prepare(self, tokenizer: Tokenizer, config: Config, values: dict[str, Any] | None) -> None:
        """The files that stay the same all through a run."""
        separator = tokenizer.token_to_id(SEPARATOR)
        replace_file(self.path / "tokenizer.json", (tokenizer.to_str(pretty=False) + "\n").encode())
        if values is None:
            values = write_config(config)[1] | {"bos_token_id": separator, "eos_token_id": separator}
        own = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SEPARATOR,
            "eos_token": SEPARATOR,
            "model_max_length": config.context,
        }
        ids = {"bos_token_id": separator, "eos_token_id": separator}
        for name, table in (("config", values), ("tokenizer_config", own), ("generation_config", ids)):
            replace_file(self.path / f"{name}.json", (json.dumps(table, indent=2) + "\n").encode())

    def write_corpus(self, encode: Callable[[Path], None]) -> None:
        """`encode` fills the directory it is given; it becomes data/ when it is whole."""
        new = self.path / "data.tmp"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        encode(new)
        for path in new.iterdir():
            sync(path)
        new.rename(self.path / "data")
        sync(self.path)

    def corpus(self) -> Corpus:
        return open_corpus(self.path / "data", self.tokenizer())

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.path / "tokenizer.json"))

    def save(self, model: Transformer, memory: dict[str, Tensor], at: Place, keep: int) -> Path:
        """A whole checkpoint; then the run's own model is that of the checkpoint."""
        values = read_json(self.path / "config.json")

        def write(directory: Path) -> None:
            from safetensors.torch import save_file

            save_model(model, directory, values)
            save_file(memory, directory / "optimizer.safetensors")
            (directory / "state.json").write_text(json.dumps(asdict(at)) + "\n")
            for name in MODEL_FILES:
                if (self.path / name).exists():
                    shutil.copyfile(self.path / name, directory / name)

        try:
            saved = save_snapshot(self.checkpoints, at.step, write)
            self._publish(saved)
        except (OSError, SafetensorError) as error:
            raise self._failed(at.step, error) from None
        self.saved = at.step
        prune(self.checkpoints, keep)
        return saved

    def _publish(self, saved: Path) -> None:
        new = self.path / "model.safetensors.tmp"
        new.unlink(missing_ok=True)
        try:
            os.link(saved / "model.safetensors", new)
        except OSError:  # a file system without links
            shutil.copyfile(saved / "model.safetensors", new)
        new.replace(self.path / "model.safetensors")
        sync(self.path)

    def _failed(self, step: int, error: Exception) -> EnvironmentFailed:
        full = "No space left" in str(error) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else str(error)
        last = "no checkpoint was written before" if self.saved is None else f"step {self.saved} is intact"
        return EnvironmentFailed(f"{self.checkpoints}: step {step} could not be saved: {why}; {last}")

    def restore(self, warn: Callable[[str], None]) -> tuple[Transformer, dict[str, Tensor], Place] | None:
        """The newest state that is as it was written, or nothing if none was saved yet."""
        import torch

        collect(self.checkpoints)
        directory = newest_valid(self.checkpoints, warn)
        if directory is None:
            return None
        model = load_model(open_checkpoint(directory), torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()  # off the file
        from safetensors.torch import load_file

        memory = load_file(directory / "optimizer.safetensors")
        at = Place(**read_json(directory / "state.json"))
        self.saved = at.step
        return model.requires_grad_(True), memory, at


class Metrics:
    """metrics.jsonl: a line a step, and one for each reading of the validation text."""

    def __init__(self, path: Path, at: int):
        """Lines that a resumed run is going to write again are cut off."""
        self.path = path
        rows = list(read_metrics(path)) if path.exists() else []
        kept = [row for row in rows if row["step"] < at or (row["step"] == at and "loss" in row)]
        if len(kept) < len(rows):
            replace_file(path, "".join(json.dumps(row) + "\n" for row in kept).encode())
        self.file = path.open("a")

    def write(self, row: dict[str, Any]) -> None:
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a metrics.jsonl; a last line that was cut off by a crash is left out."""
    for line in path.read_text().splitlines():
        with suppress(ValueError):
            yield json.loads(line)
