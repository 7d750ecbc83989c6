"""tfm train as a process: real signals, real files, and two runs compared byte by byte."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.process import Running, tfm
from tests.text import write_chats, write_stories
from tests.tiny import write_tiny
from weights import session  # noqa: F401 - loaded once, before the forks
from weights.load import load

SMALL = ("--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--vocab-size", "300")
SHORT = (*SMALL, "--batch", "4", "--micro-batch", "2", "--warmup", "2", "--threads", "1", "--dtype", "fp32")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stories(tmp_path_factory.mktemp("text") / "stories.txt")


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 steps with dropout, in one go."""
    out = tmp_path_factory.mktemp("runs") / "trained"
    result = tfm(
        "train", str(text), "--out", str(out), *SHORT, "--steps", "24", "--save-every", "5", "--dropout", "0.2"
    )
    assert result.code == 0, result.err
    return out


def files(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def wait_for_step(running: Running, run: Path, step: int) -> None:
    """Reads what the process says until its log has a step; an end before that fails."""
    log = run / "metrics.jsonl"
    while not log.exists() or f'"step": {step},' not in log.read_text():
        assert os.waitpid(running.pid, os.WNOHANG) == (0, 0), running.err.read()
        time.sleep(0.01)  # leaves the core to it


def test_a_run_is_a_model_for_us_and_for_transformers(trained: Path) -> None:
    loaded = load(str(trained), dtype="fp32")
    theirs = AutoModelForCausalLM.from_pretrained(trained)
    tokenizer = AutoTokenizer.from_pretrained(trained)
    ids = tokenizer("Once upon a time there was")["input_ids"]
    assert ids == loaded.tokenizer.encode("Once upon a time there was").ids  # nothing is added by itself
    assert theirs.config.model_type == "qwen3" and theirs.config.bos_token_id == tokenizer.bos_token_id == 0
    with torch.no_grad():
        ours, expected = loaded.model(torch.tensor([ids])), theirs(torch.tensor([ids])).logits
    assert (ours - expected).abs().max() < 1e-4
    assert tfm("generate", "-m", str(trained), "Once upon", "-n", "5").code == 0


def test_a_run_without_kernels_says_so(text: Path, tmp_path: Path) -> None:
    result = tfm(
        "train", str(text), "--out", str(tmp_path / "run"), *SHORT, "--steps", "1", XDG_CACHE_HOME=str(tmp_path)
    )
    assert result.code == 0 and b"compiled kernels would make this faster: tfm kernels build" in result.err


def test_what_is_left_in_the_directory(trained: Path) -> None:
    assert set(files(trained)) >= {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
        "run.toml", "metrics.jsonl", "loss.svg", "checkpoints/latest", "checkpoints/step-24/optimizer.safetensors",
        "checkpoints/step-20/optimizer.safetensors", "checkpoints/step-5/model.safetensors",
    }  # fmt: skip
    rows = metrics(trained)
    losses = [row["loss"] for row in rows if "loss" in row]
    assert len(losses) == 24 and sum(losses[-4:]) < sum(losses[:4])
    bits = [row for row in rows if "valid_bpb" in row]
    assert [row["step"] for row in bits] == [0, 20, 24] and bits[-1]["valid_bpb"] < bits[0]["valid_bpb"]
    assert bits[0]["sources"].keys() == {"stories"}
    assert (trained / "loss.svg").read_text().startswith("<svg ")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(
    trained: Path, text: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    options = (*SHORT, "--steps", "24", "--save-every", "5", "--dropout", "0.2")
    running = Running("train", str(text), "--out", str(out), *options)
    wait_for_step(running, out, 8)
    os.kill(running.pid, number)
    stopped = running.finish()
    assert stopped.code == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    rows = metrics(out)
    if number != signal.SIGKILL:
        step = rows[-1]["step"]
        assert f"saved step {step}; go on with: tfm train --out {out} --resume" in stopped.err.decode()
        assert (out / f"checkpoints/step-{step}/optimizer.safetensors").exists()
    assert rows[-1]["step"] < 24
    again = tfm("train", "--out", str(out), "--resume")
    assert again.code == 0 and b"going on from step" in again.err
    mine, theirs = files(out), files(trained)
    odd = {name for name in mine.keys() ^ theirs.keys() if not name.startswith("checkpoints/step-")}
    assert not odd  # a signal leaves one more checkpoint behind
    assert [name for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]] == []
    assert "checkpoints/step-24/optimizer.safetensors" in mine.keys() & theirs.keys()


@pytest.mark.parametrize(("dtype", "bound"), [("fp32", 1e-3), ("bf16", 1e-2)])
def test_with_the_kernels_a_run_that_was_killed_goes_on_to_the_same_bytes(
    text: Path, tmp_path: Path, kernels: Path, dtype: str, bound: float
) -> None:
    options = (*SHORT, "--width", "32", "--steps", "24", "--save-every", "5", "--dtype", dtype)
    whole, cut, plain = (tmp_path / name for name in ("whole", "cut", "plain"))
    cache = str(kernels)
    result = tfm("train", str(text), "--out", str(whole), *options, XDG_CACHE_HOME=cache)
    assert result.code == 0 and b"tfm kernels build" not in result.err
    running = Running("train", str(text), "--out", str(cut), *options, XDG_CACHE_HOME=cache)
    wait_for_step(running, cut, 8)
    os.kill(running.pid, signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    assert tfm("train", "--out", str(cut), "--resume", XDG_CACHE_HOME=cache).code == 0
    assert files(cut) == files(whole)
    assert tfm("train", str(text), "--out", str(plain), *options).code == 0
    ours, theirs = ([row["loss"] for row in metrics(run) if "loss" in row] for run in (whole, plain))
    assert ours == pytest.approx(theirs, rel=bound) and ours != theirs  # the same but for the last bits: it was used


def test_a_second_wish_ends_it_at_once(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    running = Running("train", str(text), "--out", str(out), *SMALL, "--batch", "500", "--steps", "1000000")
    wait_for_step(running, out, 1)
    os.kill(running.pid, signal.SIGSTOP)
    os.kill(running.pid, signal.SIGINT)
    os.kill(running.pid, signal.SIGCONT)
    for line in running.err:
        if b"stopping after this step" in line:
            break
    os.kill(running.pid, signal.SIGINT)
    assert running.finish().code == -signal.SIGINT  # not by us: nothing could have delayed it
    assert tfm("train", "--out", str(out), "--resume", "--steps", "1").code == 0


def test_a_finished_run_says_so_and_a_larger_budget_goes_on(trained: Path, tmp_path: Path) -> None:
    done = tfm("train", "--out", str(trained), "--resume")
    assert done.code == 0 and b"finished at step 24; a larger budget would go on" in done.err
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    more = tfm("train", "--out", str(copy), "--resume", "--steps", "26")
    assert more.code == 0 and metrics(copy)[-1]["step"] == 26
    assert "steps = 26" in (copy / "run.toml").read_text()


def test_two_runs_of_one_plan_are_the_same_bytes(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    result = tfm("train", "--config", str(trained / "run.toml"), "--out", str(out))
    assert result.code == 0, result.err
    assert files(out) == files(trained)


def test_two_processes_cannot_write_one_run(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    running = Running("train", str(text), "--out", str(out), *SHORT, "--steps", "1000000")
    wait_for_step(running, out, 1)
    second = tfm("train", "--out", str(out), "--resume")
    os.kill(running.pid, signal.SIGTERM)
    assert running.finish().code == 143
    assert second.code == 1 and second.error.startswith(f"{out}: process {running.pid} on ")


@pytest.mark.parametrize("budget", [("--tokens", "640"), ("--epochs", "0.2"), ("--minutes", "0.02")])
def test_budgets(text: Path, tmp_path: Path, budget: tuple[str, str]) -> None:
    result = tfm("train", str(text), "--out", str(tmp_path / "run"), *SHORT, *budget)
    assert result.code == 0, result.err
    rows = [row for row in metrics(tmp_path / "run") if "loss" in row]
    assert ("seconds" in rows[-1]) == (budget[0] == "--minutes")
    if budget[0] == "--tokens":
        assert rows[-1]["tokens"] == 640


def test_minutes_alone_choose_size_and_batch(text: Path, tmp_path: Path) -> None:
    result = tfm("train", str(text), "--out", str(tmp_path / "run"), "--minutes", "0.01")
    assert result.code == 0, result.err
    assert re.search(rb"trains at \d+ GFLOP/s: for 0.01 minutes and 0.0 MB of text the preset nano, \d+ ", result.err)


def test_presets_options_and_annealing(text: Path, tmp_path: Path) -> None:
    other = write_stories(tmp_path / "other.txt", 20, first=1000)
    out = tmp_path / "run"
    result = tfm(
        "train", f"{text}:0.5", str(other), "--anneal", f"{other}:2", "--out", str(out), "--preset", "nano",
        "--preset", "gpt2", *SHORT, "--steps", "6", "--optimizer", "adamw", "--lr", "0.001", "--schedule", "cosine",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert json.loads((out / "config.json").read_text())["model_type"] == "gpt2"
    assert json.loads((out / "checkpoints/step-6/state.json").read_text())["anneal_from"] == 12
    assert metrics(out)[0]["sources"].keys() == {"stories", "other"}


def test_a_model_is_fine_tuned_and_keeps_what_it_came_with(text: Path, tmp_path: Path) -> None:
    model, out = write_tiny(tmp_path / "model"), tmp_path / "run"
    options = ("--steps", "6", "--batch", "4", "--context", "32")
    result = tfm("train", str(text), "--from", str(model), "--out", str(out), *options)
    assert result.code == 0, result.err
    for name in ("tokenizer.json", "config.json"):
        ours, theirs = (json.loads((directory / name).read_text()) for directory in (out, model))
        assert ours == theirs
    bits = [row["valid_bpb"] for row in metrics(out) if "valid_bpb" in row]
    assert bits[-1] < bits[0]
    by_itself = tfm(
        "train", str(text), "--from", str(model), "--out", str(tmp_path / "y"), "--steps", "1", "--batch", "2"
    )
    assert f"2 × {load(str(model)).model.config.context} tokens a step" in by_itself.err.decode()
    refused = tfm("train", str(text), "--from", str(model), "--out", str(tmp_path / "x"), *options, "--mlp", "gelu")
    assert refused.code == 2 and refused.error == "--from brings a shape of its own: --mlp cannot change it"


def test_a_config_is_stronger_than_what_suits_fine_tuning_and_options_than_a_config(text: Path, tmp_path: Path) -> None:
    model, out, config = write_tiny(tmp_path / "model"), tmp_path / "run", tmp_path / "recipe.toml"
    config.write_text("[recipe]\nlength = 16\nlr = 0.003\nbatch = 4\nmicro_batch = 2\n")
    budget = ("--steps", "1", "--batch", "2")
    result = tfm("train", str(text), "--from", str(model), "--config", str(config), "--out", str(out), *budget)
    assert result.code == 0, result.err
    recipe = tomllib.loads((out / "run.toml").read_text())["recipe"]
    assert [recipe[k] for k in ("length", "lr", "embedding_lr", "batch")] == [16, 0.003, 0.0003, 2]


@pytest.mark.parametrize("autocast", [True, False])
def test_a_config_is_stronger_than_what_was_measured(text: Path, tmp_path: Path, autocast: bool) -> None:
    out, config = tmp_path / "run", tmp_path / "recipe.toml"
    config.write_text(f"[recipe]\nautocast = {str(autocast).lower()}\n")
    result = tfm("train", str(text), *SHORT[:-2], "--config", str(config), "--out", str(out), "--steps", "1")
    assert result.code == 0, result.err
    assert tomllib.loads((out / "run.toml").read_text())["recipe"]["autocast"] is autocast


def test_a_model_grows_before_it_learns(trained: Path, text: Path, tmp_path: Path) -> None:
    out, same = tmp_path / "grown", tmp_path / "same"
    options = ("--from", str(trained), *SHORT[10:], "--steps", "24")
    sizes = ("--layers", "3", "--width", "24", "--heads", "4", "--context", "20")
    for run, more in ((out, sizes), (same, ("--context", "20"))):
        result = tfm("train", str(text), "--out", str(run), *options, *more)
        assert result.code == 0, result.err
    config = json.loads((out / "config.json").read_text())
    assert [config[k] for k in ("num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim")] == [3, 24, 4, 8]
    for run in (out, same):  # what reads samples of 20 tokens can see as many
        assert json.loads((run / "config.json").read_text())["max_position_embeddings"] == 20
        assert json.loads((run / "tokenizer_config.json").read_text())["model_max_length"] == 20
    assert config["bos_token_id"] == json.loads((trained / "config.json").read_text())["bos_token_id"]
    first, grown = ([row["valid_bpb"] for row in metrics(run) if "valid_bpb" in row] for run in (same, out))
    assert grown[0] == pytest.approx(first[0], rel=1e-3) and grown[-1] < grown[0]
    assert AutoModelForCausalLM.from_pretrained(out).config.hidden_size == 24  # and transformers can go on with it
    refused = tfm("train", str(text), "--out", str(tmp_path / "x"), *options, "--width", "8")
    assert (refused.code, refused.error) == (2, "a model can only grow: --width 8 is less than its 16")
    assert not (tmp_path / "x").exists()


def test_a_fresh_model_with_a_borrowed_tokenizer_can_be_taught(trained: Path, text: Path, tmp_path: Path) -> None:
    out, chats = tmp_path / "run", write_chats(tmp_path / "chat.jsonl")
    options = ("--tokenizer", str(trained), *SHORT[:8], *SHORT[10:], "--steps", "2")
    result = tfm("train", str(text), "--out", str(out), *options, "--teacher", str(trained), "--layers", "2")
    assert result.code == 0, result.err
    assert (out / "tokenizer.json").read_text() == (trained / "tokenizer.json").read_text()
    assert load(str(out)).model.config.vocab_size == load(str(trained)).model.config.vocab_size
    for source, more, message in (
        (chats, (), f"{trained / 'tokenizer.json'}: does not know <|im_start|>, which this text needs"),
        (text, ("--vocab-size", "400"), "--tokenizer has a vocabulary of its own: --vocab-size cannot change it"),
    ):
        refused = tfm("train", str(source), "--out", str(tmp_path / "x"), *options, *more)
        assert refused.code == 2 and refused.error.startswith(message) and not (tmp_path / "x").exists()


def test_a_model_is_respelt_in_the_vocabulary_of_another(trained: Path, text: Path, tmp_path: Path) -> None:
    options, anew, same = ("--context", "16", *SHORT[10:], "--steps", "2"), tmp_path / "anew", tmp_path / "same"
    for out, tokenizer in ((anew, write_tiny(tmp_path / "other")), (same, trained)):
        given = ("--from", str(trained), "--tokenizer", str(tokenizer), "--teacher", str(tokenizer), *options)
        result = tfm("train", str(text), "--out", str(out), *given)
        assert result.code == 0, result.err
        assert (out / "tokenizer.json").read_text() == (tokenizer / "tokenizer.json").read_text()
    ours, theirs = load(str(anew), dtype="fp32"), load(str(tmp_path / "other"))
    assert ours.model.config.vocab_size == theirs.model.config.vocab_size == 320 and ours.eos == theirs.eos
    assert ours.model.config.layers == load(str(trained)).model.config.layers
    ids = torch.tensor([ours.tokenizer.encode_plain("Once upon a time")])
    with torch.no_grad():  # transformers can go on with it
        expected = AutoModelForCausalLM.from_pretrained(anew)(ids).logits
    assert (ours.model(ids) - expected).abs().max() < 1e-4
    before, after = metrics(trained)[-1]["valid_bpb"], metrics(same)[0]["valid_bpb"]
    assert after == pytest.approx(before)  # in its own, nothing changes


def test_teachers_are_learnt_from_and_a_killed_run_goes_on_with_them(trained: Path, text: Path, tmp_path: Path) -> None:
    options = ("--from", str(trained), "--context", "16", *SHORT[10:], "--steps", "24", "--save-every", "5")
    whole, cut, alone = (tmp_path / name for name in ("whole", "cut", "alone"))
    taught = (*options, "--teacher", str(trained), "--teacher", str(trained))
    result = tfm("train", str(text), "--out", str(whole), *taught)
    assert result.code == 0 and f"what is predicted by {trained}, {trained}" in result.err.decode()
    running = Running("train", str(text), "--out", str(cut), *taught)
    wait_for_step(running, cut, 8)
    os.kill(running.pid, signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    assert tfm("train", "--out", str(cut), "--resume").code == 0
    assert files(cut) == files(whole)
    assert tfm("train", str(text), "--out", str(alone), *options).code == 0
    first = [next(row["grad_norm"] for row in metrics(run) if "loss" in row) for run in (whole, alone)]
    assert first[0] == pytest.approx(first[1] / 3, rel=0.02)  # two of three voices are the student's own


def test_lessons_are_kept_and_a_killed_run_goes_on_with_them(trained: Path, text: Path, tmp_path: Path) -> None:
    options = ("--from", str(trained), "--context", "16", *SHORT[10:], "--epochs", "2.5", "--save-every", "5")
    whole, cut, turns = (tmp_path / name for name in ("whole", "cut", "turns"))
    taught = (f"{text}:0.2", *options, "--teacher", str(trained))
    result = tfm("train", "--out", str(whole), *taught, "--lessons")
    assert result.code == 0 and b"what they predict is kept: up to 0.0" in result.err, result.err
    running = Running("train", "--out", str(cut), *taught, "--lessons")
    wait_for_step(running, cut, 12)
    os.kill(running.pid, signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    assert tfm("train", "--out", str(cut), "--resume").code == 0
    assert files(cut) == files(whole)
    assert tfm("train", "--out", str(turns), *taught).code == 0
    losses = [[row["loss"] for row in metrics(run) if "loss" in row] for run in (whole, turns)]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=0.01)
    samples = len((whole / "lessons" / "0.starts").read_bytes()) // 8
    assert samples < len(losses[0]) * 4 / 2  # of 2.5 epochs, those of one
    refused = tfm("train", str(text), "--out", str(tmp_path / "x"), *options, "--lessons")
    assert (refused.code, refused.error) == (2, "--lessons needs a --teacher to give them")
    assert not (tmp_path / "x").exists()


def test_teachers_of_other_tokens_are_refused_before_anything_is_written(
    trained: Path, text: Path, tmp_path: Path
) -> None:
    short = shutil.copytree(trained, tmp_path / "short")
    (short / "config.json").write_text(
        json.dumps(json.loads((short / "config.json").read_text()) | {"max_position_embeddings": 8})
    )
    for teacher, message in (
        (write_tiny(tmp_path / "tiny"), "has another vocabulary"),
        (short, "sees 8 tokens at once, fewer than a sample's 16"),
        (tmp_path / "none", "no such model directory"),
    ):
        out = tmp_path / "run"
        options = ("--from", str(trained), "--teacher", str(teacher), "--context", "16", "--steps", "1")
        result = tfm("train", str(text), "--out", str(out), *options)
        assert result.code == 2 and message in result.err.decode() and result.err.count(b"\n") == 1
        assert not out.exists()


def test_conversations_make_a_model_to_talk_to(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = tfm(
        "train", str(write_chats(tmp_path / "chat.jsonl")), "--out", str(out), *SHORT, "--context", "64", "--steps", "4"
    )
    assert result.code == 0, result.err
    answer = tfm("generate", "-m", str(out), "--chat", "Where does the fox live?", "-n", "4", "--seed", "1", "--json")
    assert answer.code == 0 and json.loads(answer.out)["usage"]["completion_tokens"] > 0


def test_a_bad_number_stops_it_with_the_last_good_checkpoint_named(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = (*SHORT, "--steps", "40", "--optimizer", "adamw", "--clip", "0", "--save-every", "1")
    running = tfm(
        "train", str(text), "--out", str(out), *options, "--lr", "10", "--norm", "layer", "--weight-decay", "10"
    )
    assert running.code == 1
    assert re.search(r"is (nan|inf) at step (\d+) .*; the last good checkpoint is step \d+", running.err.decode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "story.txt: 0 tokens are too few for one sample of 16 + 1 (see --context)"),
        (b"One short sentence.", "story.txt: "),
        (b"abc\xff", "story.txt: not UTF-8 at byte 3"),
    ],
)
def test_too_little_or_no_text_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "story.txt"
    path.write_bytes(data)
    result = tfm("train", str(path), "--out", str(tmp_path / "run"), *SHORT, "--steps", "3")
    assert result.code == 2 and result.err.decode().splitlines()[-1].startswith(f"tfm: error: {path.parent}/{message}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"One sentence that is long enough to be a sample of sixteen tokens, if only just.",
        b"abc " * 9000,
        b"x" * 100_000,
    ],
    ids=["sentence", "line", "word"],
)
def test_small_and_odd_texts_work(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "story.txt"
    path.write_bytes(data)
    result = tfm("train", str(path), "--out", str(tmp_path / "run"), *SHORT, "--steps", "2")
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no directory for the run: give --out"),
        (("--out", "run"), "no budget: give --minutes, --tokens, --steps or --epochs"),
        (("--out", "run", "--steps", "3", "--epochs", "1"), "one budget at a time: --steps and --epochs were given"),
        (("--out", "run", "--steps", "3", "--preset", "huge"), "preset 'huge' is unknown; there are nano, tiny,"),
        (("--out", "run", "--steps", "3", "--width", "30"), "width 30 cannot be divided among 4 heads"),
        (("--out", "run", "--steps", "3", "--dropout", "1"), "dropout must be between 0 and 0.99, got 1.0"),
        (("--out", "run", "--steps", "3", "--dtype", "fp16"), "--dtype fp16: training computes in fp32"),
        (("--out", "run", "--resume"), "run: no run to go on with: there is no run.toml"),
        (("--out", "run", "--steps", "3", "--from", "nowhere"), "nowhere: no such model directory"),
        (("--out", "run", "--steps", "3", "--anneal", "none.txt"), "none.txt: no such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tfm("train", *(() if "--resume" in options else (str(text),)), *options)
    assert result.code == 2 and result.error.startswith(message)


def test_going_on_changes_nothing_but_the_budget(trained: Path) -> None:
    result = tfm("train", "--out", str(trained), "--resume", "--lr", "1", "--layers", "3")
    assert result.code == 2
    assert result.error == "--resume goes on as the run began: only the budget may change, not --layers, --lr"
    result = tfm("train", "x.txt", "--out", str(trained), "--steps", "3")
    assert result.code == 2 and "holds a run already; go on with --resume" in result.error


def test_on_a_terminal_there_is_one_live_display(text: Path, tmp_path: Path) -> None:
    parent, child = pty.openpty()
    running = Running(
        "train", str(text), "--out", str(tmp_path / "run"), *SHORT, "--steps", "45", stderr=child, COLUMNS="90"
    )
    os.close(child)
    seen = b""
    try:
        while part := os.read(parent, 65536):
            seen += part
    except OSError:  # the other end was closed
        pass
    running.err.close()
    assert running.wait() == 0
    screen = seen.decode()
    assert "step 45  100.0%  loss " in screen and "tokens/s" in screen and "left" in screen
    assert "bits per byte of unseen text" in screen and "saved " in screen
    assert any(0x2800 < ord(c) < 0x2900 for c in screen)  # dots of the curve
    assert screen.count("\x1b[?25l") == screen.count("\x1b[?25h") == 1  # the cursor is given back
