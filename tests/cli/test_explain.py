"""tfm explain as a person runs it: real processes, a tiny model, every view."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len

from cli import main
from cli.subject import Subject
from tests.process import Result, Running, scratch, tfm
from tests.tiny import tiny_config, tiny_tokenizer, write_tiny
from tests.transformer.explain.zoo import ZOO
from tests.transformer.test_recording import Everything
from transformer.explain import verify
from transformer.recording import Recorder
from weights.load import load

TEXT = "Once upon a time there was a little fox. The fox looked at the water, and the water looked at the fox."
CHINESE = "我吃了一个苹果。 Größe 👩‍👩‍👧 e\u0301 [/INST] ok"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("models") / "other", seed=1)


def here(*args: str) -> Result:
    """The command in this process, which is quicker; what pipes, terminals and exits do is asked of real ones."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            code = main.app(["explain", "--no-stdin", *args], standalone_mode=False)
        except Exception as error:
            message, code = main._explain(error)
            print(f"tfm: error: {message}", file=err)
    return Result(code, out.getvalue().encode(), err.getvalue().encode())


def tables(tiny: Path, *args: str) -> list[str]:
    result = here("-m", str(tiny), *args)
    assert result.code == 0, result.err
    assert result.err.decode().strip(), "what the numbers are and are not"
    return result.out.decode().splitlines()


def answer(tiny: Path, *args: str) -> dict[str, Any]:
    result = here("-m", str(tiny), "--json", *args)
    assert result.code == 0, result.err
    assert result.out.endswith(b"\n") and result.out.count(b"\n") == 1
    found: dict[str, Any] = json.loads(result.out)
    return found


def refused(tiny: Path, *args: str) -> str:
    result = here("-m", str(tiny), *args)
    assert result.code == 2 and result.out == b""
    return result.error


def where(line: str, text: str) -> int:
    return cell_len(line[: line.index(text)])


@pytest.mark.parametrize("text", [TEXT, CHINESE])
@pytest.mark.parametrize("options", [(), ("--words",), ("-v", "--top", "4"), ("--words", "-v")])
def test_the_default_view_fits_a_hundred_columns_and_aligns(tiny: Path, text: str, options: tuple[str, ...]) -> None:
    lines = tables(tiny, text, *options)
    assert all(cell_len(line) <= 100 for line in lines)
    heading = lines[0]
    assert [name for name in ("#", "token", "sink", "reads", "sharpest head", "bits", "expected") if name in heading]
    assert ("spread" in heading) == ("-v" in options)
    end = where(heading, "sink") + 4
    rows = [line for line in lines[2:-1] if line[:3].strip().isdigit()]
    for number, line in enumerate(rows):
        sink = set_cells(line, end)[-4:].strip()
        assert sink == "1.00" if number == 0 else 0 <= float(sink) <= 1
    assert lines[-1].startswith("next: ")
    assert not any(mark in "\n".join(lines) for mark in "Ġ▁\N{REPLACEMENT CHARACTER}")


def set_cells(line: str, width: int) -> str:
    """The part of a line that fills so many columns."""
    end = next(i for i in range(len(line) + 1) if cell_len(line[:i]) == width)
    return line[:end]


def test_text_is_shown_not_interpreted(tiny: Path) -> None:
    shown = "\n".join(tables(tiny, "[/INST] [bold]x \x1b[31mred \u202e", "--top", "1"))
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "^[" in shown


def test_json_has_the_promised_shape(tiny: Path) -> None:
    found = answer(tiny, TEXT)
    assert list(found) == ["schema_version", "model", "text", "n_layers", "n_heads", "tokens", "next", "caveats"]
    assert (found["schema_version"], found["text"], found["n_layers"], found["n_heads"]) == (1, TEXT, 2, 4)
    first, *others = found["tokens"]
    keys = ["index", "id", "text", "start", "end", "surprisal_bits", "predictions", "sink", "reads", "sharpest"]
    assert all(list(token) == keys for token in found["tokens"])
    assert (first["surprisal_bits"], first["predictions"], first["sink"], first["sharpest"]) == (None, [], 1.0, None)
    assert first["reads"] == []
    assert "".join(TEXT[t["start"] : t["end"]] for t in found["tokens"]) == TEXT
    assert [t["text"] for t in found["tokens"]] == [TEXT[t["start"] : t["end"]] for t in found["tokens"]]
    for i, token in enumerate(others, 1):
        assert token["index"] == i and token["surprisal_bits"] > 0 and 0 < token["sink"] < 1
        assert all(0 < read["index"] <= i for read in token["reads"])
        weights = [read["weight"] for read in token["reads"]]
        assert weights == sorted(weights, reverse=True) and sum(weights) + token["sink"] <= 1 + 1e-5
        if i > 2:
            assert set(token["sharpest"]) == {"layer", "head", "index", "weight"}
            assert 0 < token["sharpest"]["index"] < i - 1
        assert [p["p"] for p in token["predictions"]] == sorted((p["p"] for p in token["predictions"]), reverse=True)
    assert all(set(p) == {"id", "text", "p"} for p in found["next"])
    assert isinstance(found["caveats"], list) and all(isinstance(line, str) for line in found["caveats"])


def test_json_numbers_are_those_of_transformers(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    found = answer(tiny, TEXT, "--layer", "all", "--head", "all", "--top", "100")
    reference = AutoModelForCausalLM.from_pretrained(tiny, attn_implementation="eager").eval()
    ids = torch.tensor([[token["id"] for token in found["tokens"]]])
    with torch.no_grad():
        theirs = reference(ids, output_attentions=True)
    for matrix in found["attention"]:
        weights = theirs.attentions[matrix["layer"]][0, matrix["head"]]
        for i, row in zip(matrix["rows"], matrix["weights"], strict=True):
            assert len(row) == i + 1
            assert row == pytest.approx(weights[i, : i + 1].tolist(), abs=1e-5)
    assert len(found["attention"]) == 8
    bits = -theirs.logits[0].log_softmax(-1) / torch.tensor(2.0).log()
    mean = torch.stack(theirs.attentions).mean((0, 1, 2))
    for i, token in enumerate(found["tokens"]):
        assert token["sink"] == pytest.approx(float(mean[i, 0]), abs=1e-5)
        for read in token["reads"]:
            assert read["weight"] == pytest.approx(float(mean[i, read["index"]]), abs=1e-5)
        if i:
            assert token["surprisal_bits"] == pytest.approx(float(bits[i - 1, token["id"]]), abs=1e-4)


def test_words_merge_pieces_and_characters(tiny: Path) -> None:
    text = "我吃了一个苹果 unbelievable"
    pieces, words = answer(tiny, text), answer(tiny, text, "--words")
    assert [t["text"].strip() for t in words["tokens"]] == [*"我吃了一个苹果", "unbelievable"]
    assert len(pieces["tokens"]) > len(words["tokens"])
    total = sum(t["surprisal_bits"] or 0 for t in pieces["tokens"])
    first = len(words["tokens"][0]["ids"]) if "ids" in words["tokens"][0] else 1
    known = total - sum(t["surprisal_bits"] or 0 for t in pieces["tokens"][:first])
    assert sum(t["surprisal_bits"] or 0 for t in words["tokens"]) == pytest.approx(known, rel=1e-4)
    lone = [t for t in pieces["tokens"] if t["text"].startswith("⟨")]
    assert lone and all(t["end"] - t["start"] == 1 for t in lone), "pieces of one character share its span"


def test_a_matrix_is_a_heat_map_that_wraps_and_scrolls(tiny: Path) -> None:
    lines = tables(tiny, TEXT, "--layer", "1", "--head", "2")
    assert lines[0] == "layer 1, head 2: rows read columns"
    assert all(cell_len(line) <= 100 for line in lines)
    found = answer(tiny, TEXT, "--layer", "1", "--head", "2", "--rows", "3:5")
    assert [m["rows"] for m in found["attention"]] == [[3, 4]]
    some = tables(tiny, TEXT, "--layer", "1", "--head", "2", "--rows", "3:5", "--cols", "0:3")
    assert len(some) == 1 + 3 + 2
    weight = found["attention"][0]["weights"][0][1]
    assert f"{weight:.2f}".removeprefix("0") in some[4]
    assert tables(tiny, TEXT, "--layer", "mean")[0] == "mean of all layers, mean of all heads: rows read columns"


def test_one_token(tiny: Path) -> None:
    found = answer(tiny, "the fox and the fox", "--words", "--token", "fox")["token"]
    assert found["index"] == 1 and len(found["layers"]) == 2
    assert all(sum(layer["mean"]) == pytest.approx(1, abs=1e-5) for layer in found["layers"])
    assert [reader["index"] for reader in found["read_by"]] != [] and {r["index"] for r in found["read_by"]} == {
        2,
        3,
        4,
    }
    assert answer(tiny, "the fox and the fox", "--words", "--token", "fox#2")["token"]["index"] == 4
    lines = tables(tiny, "the fox and the fox", "--words", "--token", "fox#2")
    assert lines[0].startswith("where “fox#2” (4) reads")
    assert any("the#2" in line and "fox " in line for line in lines), "repeated words are told apart"
    assert "not among the 5 tokens" in refused(tiny, "the fox and the fox", "--words", "--token", "dog")


def test_by_hand_can_be_checked_by_hand(tiny: Path) -> None:
    where_to = ("--token", "5", "--layer", "1", "--head", "3")
    found = answer(tiny, TEXT, "--by-hand", *where_to)["by_hand"]
    q, k, v = (torch.tensor(found[name]) for name in "qkv")
    scores = (k @ q) * 8**-0.5
    assert found["scaled"] == pytest.approx(scores.tolist(), abs=1e-5)
    assert found["weight"] == pytest.approx(scores.softmax(0).tolist(), abs=1e-5)
    assert found["output"] == pytest.approx((scores.softmax(0) @ v).tolist(), abs=1e-5)
    assert found["max_error"] < 1e-5
    lines = tables(tiny, TEXT, "--by-hand", *where_to)
    assert "scaled = q·k ÷ √8 = q·k × 0.353553" in lines
    assert all(cell_len(line) <= 100 for line in lines)
    assert "needs one --token" in refused(tiny, TEXT, "--by-hand", "--layer", "1")
    assert "takes one layer and one head" in refused(
        tiny, TEXT, "--by-hand", "--token", "5", "--layer", "all", "--head", "0"
    )


def test_roles_say_what_they_cannot_tell(tiny: Path) -> None:
    found = answer(tiny, "Once upon", "--roles")["roles"]
    assert found["repeated"]["seed"] == 0 and found["repeated"]["patterns"]["induction"]["chance"] > 0
    shown = "\n".join(tables(tiny, "ab", "--roles"))
    assert "induction, what followed this token earlier: n/a" in shown and "random tokens said twice" in shown
    again = answer(tiny, "Once upon", "--roles", "--seed", "1")["roles"]
    assert again["text"] == found["text"] and again["repeated"] != found["repeated"]


def test_methods_side_by_side(tiny: Path) -> None:
    found = answer(tiny, TEXT, "--weights", "all", "--token", "-1")["weights"]
    n = len(answer(tiny, TEXT)["tokens"])
    assert list(found["methods"]) == ["raw", "norm", "rollout", "even", "zeroing", "gradient"]
    for name, shares in found["methods"].items():
        assert len(shares) == n and sum(map(abs, shares)) == pytest.approx(1, abs=1e-4), name
    assert len(found["agreement"]) == 10 and all(-1 <= pair["spearman"] <= 1 for pair in found["agreement"])
    shown = "\n".join(tables(tiny, TEXT, "--weights", "raw,gradient"))
    assert "rank agreement" in shown and ("disagree" in shown or "agree on the order" in shown)
    assert "too few tokens" in "\n".join(tables(tiny, "ab", "--weights", "raw,norm", "--token", "0"))
    assert "expected raw" in refused(tiny, TEXT, "--weights", "raw,magic")


def test_lens(tiny: Path) -> None:
    found = answer(tiny, TEXT, "--lens", "--top", "3")
    layers = found["lens"]["layers"]
    assert [layer["layer"] for layer in layers] == ["embedding", 0, 1]
    last = layers[-1]
    for i, token in enumerate(found["tokens"][1:]):
        assert last["predictions"][i] == token["predictions"]
        assert last["actual_p"][i] == pytest.approx(2 ** -token["surprisal_bits"], rel=1e-3)
    assert last["actual_rank"][-1] is None and found["lens"]["actual"][-1] is None
    lines = tables(tiny, TEXT, "--lens")
    assert all(cell_len(line) <= 100 for line in lines)
    assert any(line.startswith("    layer  predicts behind") for line in tables(tiny, TEXT, "--lens", "--token", "3"))


@pytest.mark.parametrize("name", ["pre", "sandwich", "post", "parallel"])
def test_attribution_adds_up(name: str, tmp_path: Path) -> None:
    model = write_tiny(tmp_path, ZOO[name])
    found = answer(model, TEXT, "--attribute")["attribution"]
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(found["logit"], abs=1e-3)
    assert abs(found["gap"]) < 1e-3
    ig = found["integrated_gradients"]
    change = found["logit"] - ig["blank_logit"]
    assert sum(ig["shares"]) - change == pytest.approx(ig["completeness_error"], abs=1e-4)
    shown = "\n".join(tables(model, TEXT, "--attribute", "--words"))
    assert "gap" in shown and "completeness error" in shown


def test_attribution_of_a_difference(tiny: Path) -> None:
    difference = answer(tiny, TEXT, "--attribute", "--target", "f", "--foil", "w", "--token", "4")["attribution"]
    one, two = (
        answer(tiny, TEXT, "--attribute", "--target", t, "--token", "4")["attribution"]["logit"] for t in ("f", "w")
    )
    assert difference["row"] == 4 and difference["logit"] == pytest.approx(one - two, abs=1e-4)
    assert "needs one token" in refused(tiny, TEXT, "--attribute", "--target", "xylophone")
    assert "--target is about --attribute" in refused(tiny, TEXT, "--target", "f")


def test_ablation_beside_a_control(tiny: Path) -> None:
    found = answer(tiny, TEXT, "--ablate", "0.1,1.2")["ablation"]
    assert [[(h["layer"], h["head"]) for h in t["heads"]] for t in found["trials"]] == [
        [(0, 1)],
        [(1, 2)],
        [(0, 1), (1, 2)],
    ]
    for trial in found["trials"]:
        assert len(trial["control_next_delta_log2_p"]) == 5 and any(trial["delta_log2_p"][1:])
    mean = answer(tiny, TEXT, "--ablate", "0.1,1.2", "--ablate-by", "mean")["ablation"]
    assert mean["by"] == "mean" and mean["trials"][0]["delta_log2_p"] != found["trials"][0]["delta_log2_p"]
    auto = answer(tiny, TEXT, "--ablate", "auto")["ablation"]["trials"]
    reasons = [trial["why"].split(":")[0].split(" ")[0] for trial in auto]
    assert "sharpest" in reasons and "wrote" in reasons
    assert any("−1 random" in line for line in tables(tiny, TEXT, "--ablate", "auto"))
    assert "expected layer.head" in refused(tiny, TEXT, "--ablate", "best")


def test_a_difference_between_texts_begins_where_they_part(tiny: Path) -> None:
    a, b = "The fox looked at the water.", "The fox looked at the river."
    found = answer(tiny, a, "--diff", b, "--words")["difference"]
    assert found["first_difference"] == 5 and found["before_it_at_most"] < 1e-6
    assert all(change["query"] >= 5 for change in found["reads"] + found["heads"])
    sizes = [abs(change["difference"]) for change in found["heads"]]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 0
    shown = "\n".join(tables(tiny, a, "--diff", b, "--words"))
    assert "they part at token 5: water / river" in shown and "cannot see the future" in shown
    same = answer(tiny, a, "--diff", a)["difference"]
    assert same["first_difference"] is None and same["heads"] == []


def test_a_difference_between_models(tiny: Path, other: Path, tmp_path: Path) -> None:
    found = answer(tiny, TEXT, "--vs", str(other))["versus"]
    assert found["other"]["model"] == str(other) and found["first_difference"] is None
    assert len(found["heads"]) == 10 and abs(found["heads"][0]["difference"]) > 0.1
    itself = answer(tiny, TEXT, "--vs", str(tiny))["versus"]
    assert all(change["difference"] == 0 for change in itself["heads"])
    deeper = write_tiny(tmp_path, tiny_config(layers=tiny_config().layers * 2))
    assert answer(tiny, TEXT, "--vs", str(deeper))["versus"]["heads"] == [], "heads of other shapes do not compare"


def test_models_with_other_tokenizers_compare_where_both_have_a_boundary(tiny: Path, tmp_path: Path) -> None:
    model = write_tiny(tmp_path)
    tiny_tokenizer(270).save(str(model / "tokenizer.json"))
    found = answer(tiny, TEXT, "--vs", str(model))
    assert found["versus"]["tokens"] and max(t["other_index"] for t in found["versus"]["tokens"]) < len(TEXT)
    assert tables(tiny, TEXT, "--vs", str(model))


def test_generated_text_is_that_of_generate_and_marked(tiny: Path) -> None:
    options = ("the fox", "-n", "6", "-t", "0.9", "--seed", "5")
    written = json.loads(tfm("generate", "-m", str(tiny), *options, "--json").out)
    found = answer(tiny, "--generated", *options)
    tokens = found["tokens"]
    assert [t["id"] for t in tokens if t["generated"]] == written["tokens"]
    assert found["text"] == "the fox" + written["text"]
    why = answer(tiny, "--generated", *options, "--at", "2")["at"]
    prompt = len(tokens) - len(written["tokens"])
    assert why["chosen"]["index"] == prompt + 2 and why["row"]["index"] == prompt + 1
    assert why["chosen"]["id"] == written["tokens"][2]
    assert "needs --generated" in refused(tiny, "the fox", "--at", "0")
    assert "--at 6: there are 6" in refused(tiny, "--generated", *options, "--at", "6")
    assert tables(tiny, "--generated", *options, "--at", "0")[0].startswith("why “")


def test_why_this_token_is_answered_by_what_was_decoded(tiny: Path) -> None:
    options = ("the fox", "-n", "6", "-t", "0.9", "--seed", "5")
    written = json.loads(tfm("generate", "-m", str(tiny), *options, "--logprobs", "3", "--json").out)
    found = answer(tiny, "--generated", *options, "--layer", "all", "--head", "all", "--at", "-2")
    why, chosen = found["at"], written["logprobs"][-2]
    assert why["chosen"]["id"] == chosen["token"]
    assert why["chosen"]["p"] == pytest.approx(math.exp(chosen["logprob"]), rel=1e-4)
    for candidate, expected in zip(why["candidates"], chosen["top"], strict=False):
        assert candidate["id"] == expected["token"]
        assert candidate["p"] == pytest.approx(math.exp(expected["logprob"]), rel=1e-4)
    for matrix in found["attention"]:
        row = why["row"]["layers"][matrix["layer"]]["heads"][matrix["head"]]
        assert row == pytest.approx(matrix["weights"][why["row"]["index"]][: len(row)], abs=1e-5)


def test_why_this_token_takes_no_second_pass(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subject, "run", lambda *_: pytest.fail("a second pass"))
    for words in ((), ("--words",)):
        found = here("-m", str(tiny), "--generated", "the fox", "-n", "4", "-t", "0", "--at", "0", *words)
        assert found.code == 0 and found.out.decode().startswith("why “"), found.err


def test_generated_rows_equal_those_of_one_pass(tiny: Path) -> None:
    """What the cache gave while decoding is what one pass over the whole gives."""
    found = answer(tiny, "--generated", "Once upon a time", "-n", "12", "-t", "0", "--layer", "all", "--head", "all")
    ids = [t["id"] for t in found["tokens"]]
    model = load(str(tiny), dtype="fp32").model
    everything = Everything(model.config, len(ids))
    model(torch.tensor([ids]), tap=Recorder(everything))
    for matrix in found["attention"]:
        for i, row in zip(matrix["rows"], matrix["weights"], strict=True):
            expected = everything.weights[matrix["layer"], matrix["head"], i, : i + 1].tolist()
            assert row == pytest.approx(expected, abs=1e-5)


def test_across_the_checkpoints_of_a_run(tmp_path: Path) -> None:
    run = write_tiny(tmp_path / "run")
    for step, seed in ((10, 3), (2, 4), (100, 5)):
        write_tiny(run / "checkpoints" / f"step-{step}", seed=seed)
    found = here("--across", str(run), TEXT, "--json")
    assert found.code == 0, found.err
    across = json.loads(found.out)["across"]
    assert across["steps"] == [2, 10, 100] and len(set(across["surprisal_bits"])) == 3
    assert len(across["heads"]) == 8 and all(len(h["scores"]["induction"]) == 3 for h in across["heads"])
    shown = here("--across", str(run), TEXT).out.decode()
    assert "3 checkpoints, step 2 to 100" in shown and "induction head" in shown
    nothing = here("--across", str(run / "checkpoints" / "step-2"), TEXT)
    assert nothing.code == 2 and "no training run" in nothing.error


def test_verify_says_so_by_its_exit_code(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(check["passed"] for check in answer(tiny, TEXT, "--verify")["verify"])
    assert tfm("explain", "-m", str(tiny), TEXT, "--verify").code == 0
    monkeypatch.setitem(verify.ROUNDING, torch.float32, 0.0)
    result = tfm("explain", "-m", str(tiny), TEXT, "--verify")
    assert result.code == 1 and b"OUT OF BOUNDS" in result.out
    assert tfm("explain", "-m", str(tiny), TEXT, "--verify", "--json").code == 1


def test_csv_prints_one_view(tiny: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(here("-m", str(tiny), 'a, "b"', "--csv").out.decode())))
    assert len(rows) == len(answer(tiny, 'a, "b"')["tokens"]) and rows[1]["text"] == ","
    for view in (
        ("--lens",),
        ("--roles",),
        ("--ablate", "auto"),
        ("--token", "2"),
        ("--verify",),
        ("--attribute",),
        ("--layer", "0"),
        ("--weights", "raw"),
        ("--diff", "a, b"),
        ("--by-hand", "--token", "2", "--layer", "0", "--head", "0"),
    ):
        printed = here("-m", str(tiny), 'a, "b"', "--csv", *view)
        assert printed.code == 0, printed.err
        assert list(csv.DictReader(io.StringIO(printed.out.decode()))), view
    assert "--csv prints one view, 2 were asked for" in refused(tiny, "a b", "--csv", "--lens", "--roles")
    assert "choose one" in refused(tiny, "a b", "--csv", "--json")


def test_views_combine(tiny: Path) -> None:
    found = answer(tiny, TEXT, "--lens", "--verify", "--layer", "0")
    assert {"tokens", "lens", "verify", "attention"} <= set(found) and len(found["caveats"]) == 4
    lines = "\n".join(tables(tiny, TEXT, "--lens", "--verify"))
    assert "logit lens" in lines and "verified" in lines


def test_many_texts(tiny: Path, tmp_path: Path) -> None:
    lines = '"the fox"\n{"text": "a b", "id": "x"}\n\n{"n": 1}\nnope\n"' + "7" * 300 + '"\n'
    result = tfm("explain", "-m", str(tiny), "--jsonl", "-", "--lens", stdin=lines.encode())
    found = [json.loads(line) for line in result.out.decode().splitlines()]
    assert result.code == 1 and [f["index"] for f in found] == [0, 1, 2, 3, 4]
    assert "lens" in found[0] and found[1]["id"] == "x" and found[1]["text"] == "a b"
    assert all("error" in f for f in found[2:]) and "300 tokens" in found[4]["error"]
    file = scratch(tmp_path / "texts.jsonl", '"the fox"\n')
    assert tfm("explain", "-m", str(tiny), "--jsonl", str(file)).code == 0
    assert "takes texts from its lines" in refused(tiny, "the fox", "--jsonl", str(file))


def test_the_text_may_come_from_a_pipe_or_a_file(tiny: Path, tmp_path: Path) -> None:
    wanted = tfm("explain", "-m", str(tiny), "the fox").out
    assert tfm("explain", "-m", str(tiny), stdin=b"the fox\n").out == wanted
    assert tfm("explain", "-m", str(tiny), "--file", str(scratch(tmp_path / "t", "the fox\n"))).out == wanted
    assert "no prompt" in tfm("explain", "-m", str(tiny)).error
    assert "no tokens" in refused(tiny, "")
    assert "256" in refused(tiny, "7" * 257)


def test_memory_is_refused_before_it_is_taken(tiny: Path) -> None:
    message = refused(tiny, "7" * 250, "--budget-mb", "1")
    assert "--budget-mb allows 1" in message and "--rows" in message
    assert here("-m", str(tiny), "7" * 250, "--budget-mb", "500").code == 0


def on_terminal(*args: str) -> str:
    """What a person sees: stdout is a terminal."""
    master, slave = pty.openpty()
    running = Running(*args, stdout=slave, COLUMNS="100")
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 65536):
            shown += part
    except OSError:
        pass
    os.close(master)
    running.err.read()
    running.err.close()
    assert running.wait() == 0
    return shown.decode()


def test_a_long_text_does_not_flood_a_terminal(tiny: Path) -> None:
    text = "7" * 200
    shown = on_terminal("explain", "-m", str(tiny), text)
    assert "⋮ 160 of 200 rows left out; --rows a:b or --rows all shows them" in shown
    assert shown.count("\n") < 60 and "\x1b[" in shown
    assert on_terminal("explain", "-m", str(tiny), text, "--rows", "all").count("\n") > 200
    assert len(tables(tiny, text)) > 200


def test_rows_choose_what_is_computed(tiny: Path) -> None:
    whole, some = answer(tiny, TEXT)["tokens"], answer(tiny, TEXT, "--rows", "5:8")["tokens"]
    assert [t["index"] for t in some] == [5, 6, 7]
    for a, b in zip(some, whole[5:8], strict=True):
        assert a["reads"][0]["index"] == b["reads"][0]["index"] and a["sink"] == pytest.approx(b["sink"], abs=1e-6)
    assert "no row of" in refused(tiny, TEXT, "--rows", "900:")


def test_a_figure_of_what_was_printed(tiny: Path, tmp_path: Path) -> None:
    tables(tiny, CHINESE, "--svg", str(tmp_path / "f.svg"))
    text = (tmp_path / "f.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg") and "sharpest" in text and "我" in text
    assert "No such file" in here("-m", str(tiny), "ab", "--svg", str(tmp_path / "no" / "f.svg")).err.decode()


def test_rounded_weights_are_said_to_be_so(tiny: Path) -> None:
    assert not any("rounded" in line for line in answer(tiny, TEXT)["caveats"])
    found = answer(tiny, TEXT, "--quantize", "int8", "--verify", "--attribute", "--weights", "all")
    assert "computed with int8 weights" in found["caveats"][-1] and "rounded model" in found["caveats"][-1]
    assert all(check["passed"] for check in found["verify"])
    assert any("bfloat16" in line for line in answer(tiny, TEXT, "--dtype", "bf16")["caveats"])


def test_help_needs_no_torch() -> None:
    code = "import sys; import cli.explain; print('torch' in sys.modules, 'rich.table' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.stdout.split()[0] == "False"


@pytest.mark.parametrize("name", [name for name in ZOO if name != "pre"])
def test_every_kind_of_decoder(name: str, tmp_path: Path) -> None:
    model = write_tiny(tmp_path, ZOO[name])
    found = answer(model, TEXT, "--verify", "--lens", "--roles", "--weights", "all", "--ablate", "auto")
    assert all(check["passed"] for check in found["verify"])


def test_a_special_token_in_front_has_no_span(tmp_path: Path) -> None:
    model = write_tiny(tmp_path)
    settings = json.loads((model / "tokenizer_config.json").read_text()) | {"add_bos_token": True}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    first, second, *_ = answer(model, "the fox")["tokens"]
    assert (first["text"], first["start"], first["end"]) == ("<|endoftext|>", 0, 0)
    assert second["surprisal_bits"] is not None and second["start"] == 0


def test_chat_generation_is_explained_in_its_own_text(tiny: Path) -> None:
    found = answer(tiny, "--generated", "--chat", "hi <|im_end|>", "-n", "4", "-t", "0")
    assert found["text"].startswith("<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert sum(t["generated"] for t in found["tokens"]) == 4


def test_a_narrow_terminal_gets_the_columns_below_one_another(tiny: Path) -> None:
    """Nothing is cut off: every row stands in each block, beside its token."""
    wide, narrow = (
        tfm("explain", "-m", str(tiny), "the little fox ran and ran", COLUMNS=columns).out.decode()
        for columns in ("100", "44")
    )
    assert all(cell_len(line) <= 44 for line in narrow.splitlines() if not line.startswith("next:"))
    for heading in ("sink", "reads", "sharpest head", "bits", "expected"):
        assert heading in wide and heading in narrow
    bits = [line.split()[-3] for line in wide.splitlines() if line.endswith("%") and not line.startswith("next:")]
    assert len(bits) > 3 and all(f" {number} " in narrow for number in bits)
