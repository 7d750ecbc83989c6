from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process import Running, scratch, tfm
from tests.tiny import tiny_config, write_tiny

GREEDY = ("-t", "0", "-n", "8")


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that writes for as long as one lets it."""
    path = write_tiny(tmp_path_factory.mktemp("models") / "endless", tiny_config(context=1_000_000))
    (path / "generation_config.json").write_text("{}")
    return path


def text_of(tiny: Path, *args: str | bytes, stdin: bytes | None = None) -> bytes:
    result = tfm("generate", "-m", str(tiny), *GREEDY, *args, stdin=stdin)
    assert result.code == 0, result.err
    return result.out


def test_the_prompt_may_come_from_anywhere(tiny: Path, tmp_path: Path) -> None:
    wanted = text_of(tiny, "Once upon a time")
    assert len(wanted) > 3 and wanted.endswith(b"\n") and not wanted.endswith(b"\n\n")
    file = scratch(tmp_path / "prompt.txt", "Once upon a time\n")
    assert text_of(tiny, "-", stdin=b"Once upon a time\n") == wanted
    assert text_of(tiny, stdin=b"Once upon a time\n") == wanted
    assert text_of(tiny, "--file", str(file)) == wanted
    assert text_of(tiny, "Once upon a time", stdin=b"") == wanted, "an empty stdin counts as none"
    assert text_of(tiny, "Once upon a time", "--no-stdin", stdin=b"other") == wanted


def test_a_pipe_and_an_argument_are_joined_by_a_newline(tiny: Path, tmp_path: Path) -> None:
    wanted = text_of(tiny, "the fox\nsaid")
    assert text_of(tiny, "said", stdin=b"the fox\n") == wanted
    assert text_of(tiny, "said", "--file", str(scratch(tmp_path / "f", "the fox"))) == wanted
    assert text_of(tiny, stdin=b"the fox\n\n") == text_of(tiny, "the fox\n"), "only one newline is dropped"


def test_nothing_to_continue_is_an_error_that_does_not_wait(tiny: Path) -> None:
    result = tfm("generate", "-m", str(tiny))
    assert result.code == 2 and "no prompt" in result.error
    assert "no tokens" in tfm("generate", "-m", str(tiny), "").error


@pytest.mark.parametrize("where", ["argument", "stdin", "file"])
def test_invalid_utf8_is_named_with_its_offset(tiny: Path, tmp_path: Path, where: str) -> None:
    bad = b"ok \xff\xfe"
    args = {"argument": [bad], "stdin": [], "file": ["--file", str(scratch(tmp_path / "bad", bad))]}[where]
    result = tfm("generate", "-m", str(tiny), *args, stdin=bad if where == "stdin" else None)
    assert result.code == 2 and "not UTF-8 at byte 3 of 5" in result.error and result.out == b""


def test_too_long_a_prompt_names_both_numbers(tiny: Path) -> None:
    ten_megabytes = tfm("generate", "-m", str(tiny), stdin=b"word " * 2_000_000)
    assert ten_megabytes.code == 2 and "the context of" in ten_megabytes.error and "256" in ten_megabytes.error
    full = tfm("generate", "-m", str(tiny), "7" * 256)
    assert full.code == 2 and "256 tokens" in full.error
    over = tfm("generate", "-m", str(tiny), "7" * 200, "-n", "57")
    assert over.code == 2 and "200 prompt tokens + 57" in over.error and "256" in over.error
    fits = tfm("generate", "-m", str(tiny), "7" * 200, "-n", "56", "--json", "-t", "0")
    assert fits.code == 0
    without = tfm("generate", "-m", str(tiny), "7" * 250, "--json", "--seed", "4")
    answer = json.loads(without.out)
    assert answer["finish_reason"] in ("length", "eos") and answer["usage"]["completion_tokens"] <= 6


def test_the_seed_decides_and_is_printed_when_drawn(tiny: Path) -> None:
    def sample(*args: str) -> tuple[bytes, bytes]:
        result = tfm("generate", "-m", str(tiny), "the fox", "-n", "20", "-t", "1.5", "--top-k", "0", *args)
        assert result.code == 0
        return result.out, result.err

    drawn_out, drawn_err = sample()
    assert drawn_err.startswith(b"seed ") and drawn_err.count(b"\n") == 1
    again = sample("--seed", drawn_err.split()[1].decode())
    assert again == (drawn_out, b"")
    assert len({sample("--seed", str(seed))[0] for seed in range(4)}) == 4
    greedy = {tfm("generate", "-m", str(tiny), "fox", *GREEDY, "--seed", str(s)).out for s in range(3)}
    assert len(greedy) == 1


def test_json_has_the_promised_shape(tiny: Path) -> None:
    args = ("--json", "--logprobs", "3", "--seed", "5", "-n", "6", "-N", "2")
    result = tfm("generate", "-m", str(tiny), "the fox", *args)
    first, second = map(json.loads, result.out.splitlines())
    assert (first["seed"], second["seed"]) == (5, 6)
    for answer in (first, second):
        assert answer["prompt"] == "the fox" and answer["model"] == str(tiny)
        assert answer["finish_reason"] in ("eos", "length")
        assert answer["usage"]["completion_tokens"] == len(answer["tokens"]) == len(answer["logprobs"])
        assert set(answer["timings"]) == {"load_s", "prefill_s", "decode_s", "decode_tokens_per_s"}
        for token, entry in zip(answer["tokens"], answer["logprobs"], strict=True):
            assert entry["token"] == token and len(entry["top"]) == 3
            best = [candidate["logprob"] for candidate in entry["top"]]
            assert best == sorted(best, reverse=True) and entry["logprob"] <= best[0] <= 0
    alone = json.loads(tfm("generate", "-m", str(tiny), "the fox", "--json", "--seed", "6", "-n", "6").out)
    assert alone["tokens"] == second["tokens"]


def test_stop_strings_are_trimmed(tiny: Path) -> None:
    whole = json.loads(text_of(tiny, "the fox", "--json"))["text"]
    stop = whole[4:6]
    answer = json.loads(tfm("generate", "-m", str(tiny), "the fox", *GREEDY, "--json", "--stop", stop).out)
    assert answer["text"] == whole[: whole.index(stop)] and answer["finish_reason"] == "stop"


def test_control_characters_are_made_visible_unless_raw(tiny: Path) -> None:
    args = ("generate", "-m", str(tiny), "the fox", "-n", "200", "-t", "3", "--top-k", "0", "--seed", "1")
    shown, raw = tfm(*args).out.decode(), tfm(*args, "--raw-output").out.decode()
    assert any(ord(c) < 32 and c not in "\n\t" for c in raw), "the model must write some for this to show anything"
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in shown)


def test_jsonl_keeps_order_ids_and_going(tiny: Path) -> None:
    lines = [
        '"a story"',
        '{"prompt": "the fox", "id": "x", "max_tokens": 3}',
        "not json",
        '{"prompt": "river", "temperature": 0, "stop": ["zzz"]}',
        '{"prompt": 3}',
        '{"messages": [{"role": "user", "content": "hi"}]}',
        '{"prompt": "x", "colour": 1}',
        '{"prompt": "x", "top_k": true}',
        '"\\ud800"',
        "",
        '{"prompt": "' + "7" * 300 + '"}',
    ]
    result = tfm(
        "generate", "-m", str(tiny), "--jsonl", "-", "--seed", "10", "-n", "9", stdin="\n".join(lines).encode()
    )
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == 1 and [a["index"] for a in answers] == list(range(10))
    assert [i for i, a in enumerate(answers) if "error" in a] == [2, 4, 6, 7, 8, 9]
    assert answers[1]["id"] == "x" and len(answers[1]["tokens"]) <= 3
    assert "<|im_start|>user\nhi<|im_end|>" in answers[5]["prompt"]
    assert "300" in answers[9]["error"] and "256" in answers[9]["error"]
    assert all(a["seed"] == 10 + a["index"] for a in answers if "error" not in a)


def test_a_jsonl_row_alone_gives_the_same_tokens(tiny: Path, tmp_path: Path) -> None:
    prompts = ["the fox", "Once upon a time there was", "x", "river and water and river", "我吃了"]
    file = scratch(tmp_path / "in.jsonl", "\n".join(json.dumps(p) for p in prompts))
    args = ("-m", str(tiny), "-n", "25", "-t", "1.2")
    together = tfm("generate", *args, "--seed", "7", "--jsonl", str(file), "--rows", "3")
    for index, line in enumerate(together.out.splitlines()):
        alone = tfm("generate", *args, "--seed", str(7 + index), "--json", prompts[index])
        assert json.loads(line)["tokens"] == json.loads(alone.out)["tokens"]


def test_two_hundred_lines_from_yes(tiny: Path) -> None:
    yes = subprocess.Popen(["sh", "-c", "yes '\"a story\"' | head -200"], stdout=subprocess.PIPE)
    assert yes.stdout
    result = Running("generate", "-m", str(tiny), "--jsonl", "-", "-n", "4", stdin=yes.stdout.fileno()).finish()
    yes.stdout.close()
    assert yes.wait() == 0 and result.code == 0
    assert [json.loads(line)["index"] for line in result.out.splitlines()] == list(range(200))


def test_a_jsonl_client_gets_its_answer_before_it_sends_the_next_line(tiny: Path) -> None:
    read, write = os.pipe()
    running = Running("generate", "-m", str(tiny), "--jsonl", "-", "-n", "2", stdin=read)
    os.close(read)
    for index in range(3):
        os.write(write, b'"the fox"\n')
        line = b""
        while not line.endswith(b"\n"):
            line += running.out.read(1)
        assert json.loads(line)["index"] == index
    os.close(write)
    assert running.finish().code == 0


def test_a_closed_pipe_ends_it_silently(endless: Path) -> None:
    running = Running("generate", "-m", str(endless), "the fox", "-n", "900000", "--seed", "1")
    assert len(running.out.read(20)) > 0
    running.out.close()
    assert running.err.read() == b""
    running.err.close()
    assert os.waitstatus_to_exitcode(os.waitpid(running.pid, 0)[1]) == 141


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_signals_in_mid_stream(endless: Path, number: int, code: int) -> None:
    running = Running("generate", "-m", str(endless), "the fox", "-n", "900000", "--seed", "1")
    first = running.out.read(10)
    os.kill(running.pid, number)
    result = running.finish()
    assert result.code == code and result.err == b"" and first


def test_an_interrupted_jsonl_clears_its_progress(endless: Path, tmp_path: Path) -> None:
    lines = scratch(tmp_path / "prompts.jsonl", '{"prompt": "the", "max_tokens": 1}\n{"prompt": "the fox"}\n')
    ours, terminal = pty.openpty()
    running = Running("generate", "-m", str(endless), "--jsonl", str(lines), "-n", "900000", stderr=terminal)
    running.out.read(10)  # the first answer is there
    os.kill(running.pid, signal.SIGINT)
    assert running.finish().code == 130
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 4096):
            shown += data
    assert shown.endswith(b"\r\x1b[2K")
    os.close(ours)


def test_a_full_disk_is_the_environments_fault(tiny: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    result = tfm("generate", "-m", str(tiny), "the fox", *GREEDY, stdout=full)
    os.close(full)
    assert result.code == 1 and result.error == "stdout: No space left on device"


def test_usage_errors_are_one_line(tiny: Path) -> None:
    for args in (["--nonsense"], ["-n", "many"], ["-n", "0"], ["--dtype", "int3"], ["a", "b"]):
        result = tfm("generate", "-m", str(tiny), *args)
        assert result.code == 2 and result.out == b"" and result.error
    assert "top_p must be between" in tfm("generate", "-m", str(tiny), "x", "--top-p", "2").error
    assert "seed must be" in tfm("generate", "-m", str(tiny), "x", "--seed", str(2**70)).error
    assert tfm("nonsense").code == 2


def test_missing_and_refused_models(tiny: Path, tmp_path: Path) -> None:
    assert "no model of that name" in tfm("generate", "-m", "no/such", "x").error
    assert "pickle" in tfm("generate", "-m", str(scratch(tmp_path / "model.pt", b"x")), "x").error
    by_name = tfm("generate", "-m", "tiny", "the fox", *GREEDY, TFM_PATH=str(tiny.parent))
    by_variable = tfm("generate", "the fox", *GREEDY, TFM_MODEL=str(tiny))
    assert by_name.out == by_variable.out == text_of(tiny, "the fox")


def test_stats_say_what_ran(tiny: Path) -> None:
    result = tfm("generate", "-m", str(tiny), "the fox", *GREEDY, "--stats", "--dtype", "fp64")
    assert b"float64 on cpu, 1 threads" in result.err and result.out == text_of(tiny, "the fox")


def test_on_a_terminal_a_chat_model_gets_a_hint(tiny: Path) -> None:
    assert b"chat" not in tfm("generate", "-m", str(tiny), "the fox", *GREEDY).err
    ours, terminal = pty.openpty()
    result = Running("generate", "-m", str(tiny), "the fox", *GREEDY, stderr=terminal).finish()
    os.close(terminal)
    assert result.code == 0 and b"--chat applies it" in os.read(ours, 4096)
    os.close(ours)
