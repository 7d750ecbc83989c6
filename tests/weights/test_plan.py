from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from transformer.errors import InputError
from transformer.schedule import Recipe
from transformer.shape import Growth, choose
from weights.plan import Data, Length, Plan, Running, changed, dump_plan, load_plan

FULL = Plan(
    data=Data(sources=('a "quoted" \\ name.txt:2', "größe.txt"), anneal=("b.txt",), tokenizer="other"),
    length=Length(minutes=2.5),
    shape=choose(["nano", "gpt2"], {"kv_heads": 2}),
    growth=Growth(width=320, heads=5),
    recipe=Recipe(lr=1e-05, dropout=0.1, seed=7),
    running=Running(start_from="model", save_every=10, threads=3, compile=True),
)


@pytest.mark.parametrize("plan", [Plan(), FULL])
def test_what_is_written_is_read_back(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "run.toml").write_text(dump_plan(plan))
    assert load_plan(tmp_path / "run.toml") == plan


def test_a_part_of_a_plan_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[recipe]\nlr = 1\n[shape]\nlayers = 2\n")
    assert load_plan(path) == replace(Plan(), recipe=Recipe(lr=1.0), shape=choose([], {"layers": 2}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[recipe]\nlearning_rate = 1", "run.toml: recipe: learning_rate is unknown; there are optimizer, lr"),
        ("[model]\nx = 1", "run.toml: model is unknown; there are data, length"),
        ("recipe = 3", "run.toml: recipe must be a table, got 3"),
        ("[recipe]\nbatch = 1.5", "run.toml: recipe: batch must be int, got 1.5"),
        ("[recipe]\nbatch = true", "batch must be int, got True"),
        ("[recipe]\nlr = 'fast'", "lr must be int or float, got 'fast'"),
        ("[data]\nsources = 'a.txt'", "sources must be a list of strings"),
        ("[running]\ncompile = 1", "compile must be bool, got 1"),
        ("[running]\nsave_every = 'x'", "save_every must be int, got 'x'"),
        ("[recipe]\nlr = 99", "lr must be between 0 and 10, got 99"),
        ("[recipe", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_plan(tmp_path / "run.toml")


def test_what_is_not_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not valid TOML"):
        load_plan(tmp_path / "run.toml")
    with pytest.raises(InputError, match="No such file"):
        load_plan(tmp_path / "none.toml")


def test_options_change_single_values() -> None:
    plan = changed(FULL, {"recipe": {"batch": 3}, "data": {"sources": ["c.txt"]}}, "options")
    assert plan.recipe == replace(FULL.recipe, batch=3) and plan.data == replace(FULL.data, sources=("c.txt",))
