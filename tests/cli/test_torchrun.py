"""Several gloo processes against one: DDP, FSDP2, each going on with the other's checkpoints, and killed ones.

torchrun is slow to start, so most tests fork the processes themselves, and a store for them that outlives them, as
torchrun's does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.distributed import TCPStore

from tests.process import Result, Running, tfm
from tests.text import write_stories
from weights import session  # loaded once, before the forks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL = ("--layers", "2", "--width", "32", "--heads", "2", "--context", "16", "--vocab-size", "300", "--threads", "1")
SMALL += ("--dtype", "fp32")  # what is promised is promised for it, whatever the machine would choose
# Without decay, the steps of a run do not depend on how long it is going to be.
FLAT = (*SMALL, "--batch", "8", "--micro-batch", "2", "--warmup", "0", "--decay", "0")
STEPS = 28
PATIENCE = 300  # seconds, after which whoever still runs is killed


class Launcher:
    """Starts processes as torchrun does; all that it starts find the same store."""

    def __init__(self) -> None:
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def start(self, processes: int, *options: str, restarts: tuple[int, ...] = (0, 0, 0, 0)) -> list[Running]:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.store.port), "WORLD_SIZE": str(processes)}
        shared["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        own = ({"RANK": str(n), "TORCHELASTIC_RESTART_COUNT": str(restarts[n])} for n in range(processes))
        return [Running("train", *options, **shared, **env) for env in own]

    def finish(self, processes: list[Running]) -> list[Result]:
        watchdog = threading.Timer(PATIENCE, lambda: [os.kill(process.pid, signal.SIGKILL) for process in processes])
        watchdog.start()
        try:
            return [process.finish() for process in processes]
        finally:
            watchdog.cancel()

    def run(self, processes: int, *options: str) -> list[Result]:
        return self.finish(self.start(processes, *options))


def train(processes: int, *options: str) -> None:
    """To the end: one process without torchrun, or several."""
    results = [tfm("train", *options)] if processes == 1 else Launcher().run(processes, *options)
    assert [result.code for result in results] == [0] * processes, results


def losses(run: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # leaves the core to others


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stories(tmp_path_factory.mktemp("text") / "stories.txt", 200)


@pytest.fixture(scope="module")
def alone(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of a single process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    train(1, str(text), "--out", str(out), *FLAT, "--steps", str(STEPS))
    return losses(out)


def assert_same(run: Path, alone: dict[int, float]) -> None:
    found = losses(run)
    assert list(found) == list(alone) == list(range(1, STEPS + 1))
    assert found == pytest.approx(alone, rel=0, abs=1e-5)


@pytest.mark.parametrize("engine", ["--no-shard", "--shard"], ids=["ddp", "fsdp2"])
def test_two_processes_compute_what_one_does(text: Path, tmp_path: Path, engine: str, alone: dict[int, float]) -> None:
    train(2, str(text), "--out", str(tmp_path / "run"), *FLAT, "--steps", str(STEPS), engine)
    assert_same(tmp_path / "run", alone)


@pytest.mark.parametrize("engine", ["--no-shard", "--shard"], ids=["ddp", "fsdp2"])
def test_two_processes_with_the_kernels(
    text: Path, tmp_path: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch, engine: str, alone: dict[int, float]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(kernels))
    for processes, name in ((1, "alone"), (2, "run")):
        train(processes, str(text), "--out", str(tmp_path / name), *FLAT, "--steps", str(STEPS), engine)
    found = losses(tmp_path / "alone")
    assert_same(tmp_path / "run", found)
    assert found != alone  # made without them: the last bits tell


def test_each_goes_on_where_another_stopped(text: Path, tmp_path: Path, alone: dict[int, float]) -> None:
    """A run in seven stretches: each way from one process, DDP or FSDP2 to another, and another number of them."""
    one, ddp, fsdp = (1, "--no-shard"), (2, "--no-shard"), (2, "--shard")
    for number, (processes, engine) in enumerate((one, ddp, fsdp, one, fsdp, (4, "--no-shard"), one), 1):
        first = (str(text), *FLAT) if number == 1 else ("--resume",)
        train(processes, *first, "--out", str(tmp_path / "run"), "--steps", str(number * STEPS // 7), engine)
    assert_same(tmp_path / "run", alone)


@pytest.mark.parametrize("killed", [0, 1])
def test_who_is_left_behind_leaves_and_a_new_start_goes_on(
    text: Path, tmp_path: Path, killed: int, alone: dict[int, float]
) -> None:
    out, launcher = tmp_path / "run", Launcher()
    options = (str(text), "--out", str(out), *FLAT, "--steps", str(STEPS), "--save-every", "4")
    processes = launcher.start(2, *options)
    wait_until(lambda: (out / "checkpoints/step-4").exists())
    os.kill(processes[killed].pid, signal.SIGKILL)
    results = launcher.finish(processes)
    assert results[killed].code == -signal.SIGKILL
    assert results[1 - killed].code == 1
    assert f"tfm: error: process {1 - killed} lost the others" in results[1 - killed].err.decode()
    # On another machine, whose processes were only ended, the first one has not counted a restart.
    again = launcher.finish(launcher.start(2, *options, restarts=(0, 1)))
    assert [result.code for result in again] == [0, 0], again
    assert "going on from step" in again[0].err.decode()
    assert_same(out, alone)


def test_a_signal_to_one_process_stops_all_and_saves(text: Path, tmp_path: Path) -> None:
    out, launcher = tmp_path / "run", Launcher()
    processes = launcher.start(2, str(text), "--out", str(out), *FLAT, "--steps", "100000")
    wait_until(lambda: (out / "metrics.jsonl").exists() and len(losses(out)) > 2)
    os.kill(processes[1].pid, signal.SIGTERM)
    assert [result.code for result in launcher.finish(processes)] == [128 + signal.SIGTERM] * 2
    assert (out / f"checkpoints/step-{max(losses(out))}").exists()


def test_processes_with_other_clocks_agree_when_to_evaluate(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the second one every evaluation seems to take days, and it would make no other by itself."""
    own = SimpleNamespace(monotonic=lambda: time.monotonic() * 1e6 ** int(os.environ["RANK"]))
    monkeypatch.setattr(session, "time", own)
    train(2, str(text), "--out", str(tmp_path / "run"), *FLAT, "--minutes", "0.05")
    assert (tmp_path / "run/metrics.jsonl").read_text().count("valid_bpb") > 2


def test_a_batch_that_cannot_be_shared_is_refused(text: Path, tmp_path: Path) -> None:
    options = (str(text), "--out", str(tmp_path / "run"), *SMALL, "--batch", "3", "--steps", "3")
    for result in Launcher().run(2, *options):
        assert result.code == 2
        assert "tfm: error: a batch of 3 cannot be shared out evenly among 2 processes" in result.err.decode()


def test_torchrun_replaces_a_killed_process(text: Path, tmp_path: Path, alone: dict[int, float]) -> None:
    out = tmp_path / "run"
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    options = (str(text), "--out", str(out), *FLAT, "--steps", str(STEPS), "--save-every", "4")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    said = (tmp_path / "said").open("w+")
    with (
        said,
        subprocess.Popen((*torchrun, "-m", "cli", "train", *options), cwd=ROOT, env=environment, stderr=said) as agent,
    ):
        try:
            wait_until(lambda: (out / "checkpoints/step-4").exists() or agent.poll() is not None)
            workers = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
            os.kill(int(workers[-1]), signal.SIGKILL)
            code = agent.wait(PATIENCE)
        finally:
            agent.terminate()  # ends its processes, too
        assert code == 0, (tmp_path / "said").read_text()
    assert "going on from step" in (tmp_path / "said").read_text()
    assert_same(out, alone)
