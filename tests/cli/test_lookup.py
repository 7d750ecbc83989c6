"""--prompt-lookup on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.process import scratch, tfm


def test_the_text_is_the_same(tiny: Path) -> None:
    prompt = "the fox and the fox and the fox and the"
    for options in (("-t", "0"), ("--seed", "3")):
        answers = [
            json.loads(tfm("generate", "-m", str(tiny), prompt, "-n", "20", "--json", *options, *more).out)
            for more in ((), ("--prompt-lookup", "4"))
        ]
        assert answers[0]["tokens"] == answers[1]["tokens"]


def test_it_is_for_one_text_at_a_time(tiny: Path, tmp_path: Path) -> None:
    lines = scratch(tmp_path / "x.jsonl", '"hello"\n')
    result = tfm("generate", "-m", str(tiny), "--jsonl", str(lines), "--prompt-lookup", "4")
    assert result.code == 2 and "not with --jsonl" in result.error
