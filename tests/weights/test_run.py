from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.tiny import tiny_model, write_tiny
from transformer.errors import EnvironmentFailed, InputError
from transformer.schedule import Place
from weights.base import base_of
from weights.plan import Plan
from weights.run import Metrics, Run, read_metrics
from weights.snapshot import fault, newest_valid


def saved(run: Run, step: int) -> None:
    """Saves a state that is different at every step."""
    model = tiny_model(seed=step)
    memory = {"embed.weight/momentum": torch.full((3, 2), float(step))}
    run.save(model, memory, Place(step=step, samples=8 * step, anneal_from=4), keep=2)


def state(run: Run) -> int:
    """The step that is restored, checked number by number."""
    model, memory, at = run.restore(pytest.fail) or pytest.fail("nothing was restored")
    for a, b in zip(model.parameters(), tiny_model(seed=at.step).parameters(), strict=True):
        assert torch.equal(a, b) and a.requires_grad
    assert memory["embed.weight/momentum"].tolist() == [[at.step] * 2] * 3
    assert at == Place(step=at.step, samples=8 * at.step, anneal_from=4)
    return at.step


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    run.path.mkdir()
    base = base_of(write_tiny(tmp_path / "model"))
    run.prepare(base, lambda directory: (directory / "corpus.json").write_text("{}") and None)
    run.write_plan(Plan())
    saved(run, 1)
    return run


def test_a_run_is_a_model_directory_of_its_newest_state(run: Run) -> None:
    saved(run, 2)
    assert state(run) == 2
    newest = run.checkpoints / "step-2"
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (run.path / name).read_bytes() == (newest / name).read_bytes()
    assert os.path.samefile(run.path / "model.safetensors", newest / "model.safetensors")
    assert base_of(newest).config == base_of(run.path).config


def children(run: Run, act: Callable[[], None]) -> list[int]:
    """Saves step 2 in a child that is disturbed at its k-th file operation, for every k until there is none."""
    codes = []
    for k in range(1, 400):
        pid = os.fork()
        if pid == 0:
            left = k

            def hook(event: str, arguments: tuple[object, ...]) -> None:
                nonlocal left
                if event.startswith(("os.", "shutil.")) or (event == "open" and arguments[1] not in ("r", "rb")):
                    left -= 1
                    if left == 0:
                        act()

            code = 1
            try:
                sys.addaudithook(hook)
                saved(run, 2)
                code = 0 if left > 0 else 3  # 3: it was disturbed and did it nevertheless
            except EnvironmentFailed as error:
                code = 4 if "the disk is full" in str(error) else 5
            finally:
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        codes.append(os.waitstatus_to_exitcode(status))
        if codes[-1] == 0:
            return codes
        newest = newest_valid(run.checkpoints, pytest.fail)  # by the sums of its files: nothing is half there
        assert newest is not None and newest.name in ("step-1", "step-2")
        assert fault(run.checkpoints / "step-1") is None
        Run(run.path).collect()
        assert not list(run.path.rglob("*.tmp"))
        shutil.rmtree(run.checkpoints / "step-2", ignore_errors=True)
    pytest.fail("it never came to an end")


def test_killed_at_any_file_operation_the_newest_whole_state_is_there(run: Run) -> None:
    codes = children(run, lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert len(codes) > 40 and set(codes[:-1]) == {-signal.SIGKILL}
    assert state(run) == 2


def test_a_full_disk_at_any_file_operation_leaves_the_old_state(run: Run) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    codes = children(run, full)
    assert len(codes) > 40 and set(codes[:-1]) <= {3, 4} and codes.count(4) > 20
    assert state(run) == 2


def test_the_message_names_what_is_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("weights.run.save_model", full)
    message = "checkpoints: step 2 was not saved: the disk is full; that of step 1 is whole"
    with pytest.raises(EnvironmentFailed, match=message):
        saved(run, 2)


def test_a_file_that_may_not_grow_is_refused_and_the_old_state_stays(run: Run) -> None:
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        code = 1
        try:
            saved(run, 2)
        except EnvironmentFailed as error:
            code = 4 if "File too large" in str(error) else 5
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
    assert state(run) == 1 and not list(run.path.rglob("*.tmp"))


def test_a_damaged_state_falls_back_with_a_warning(run: Run) -> None:
    saved(run, 2)
    path = run.checkpoints / "step-2/optimizer.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    warnings: list[str] = []
    restored = run.restore(warnings.append)
    assert restored and restored[2].step == 1
    assert len(warnings) == 1 and "optimizer.safetensors is not what was written" in warnings[0]


def test_one_writer_at_a_time_and_the_lock_names_it(run: Run) -> None:
    named = pytest.raises(EnvironmentFailed, match=f"run: process {os.getpid()} on .* is writing this run")
    with run.lock(), named, Run(run.path).lock():
        pass
    with Run(run.path).lock():
        pass
    assert not (run.path / ".lock").exists()


def test_a_lock_goes_with_its_process(run: Run) -> None:
    pid = os.fork()
    if pid == 0:
        run.lock().__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    with Run(run.path).lock():
        pass


def test_a_run_that_is_none(tmp_path: Path) -> None:
    run = Run(tmp_path / "none")
    assert not run.exists() and run.restore(pytest.fail) is None
    with pytest.raises(InputError, match=r"none: no run to go on with: there is no run.toml"):
        run.plan()


def test_metrics_after_the_checkpoint_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": 0, "valid_bpb": 3.0}, {"step": 1, "loss": 2.0}, {"step": 1, "valid_bpb": 2.5}]
    path.write_text(
        "".join(f"{row}\n".replace("'", '"') for row in [*rows, {"step": 2, "loss": 1.0}]) + '{"step": 3, "lo'
    )
    metrics = Metrics(path, 1)
    assert read_metrics(path) == rows[:2]  # the evaluation of step 1 is done again
    metrics.write({"step": 1, "valid_bpb": 2.4})
    assert read_metrics(path)[-1] == {"step": 1, "valid_bpb": 2.4}


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailed, match="file/run: Not a directory"), Run(tmp_path / "file/run").lock():
        pass
