from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.transformer.explain.zoo import IDS, ZOO, zoo_model
from transformer.config import Config
from transformer.explain import verify as module
from transformer.explain.memory import estimate
from transformer.explain.overview import Mean
from transformer.explain.reading import Reads
from transformer.explain.verify import Check, Sums, verify
from transformer.recording import Rows


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ZOO)
def test_every_decoder_passes(name: str, dtype: torch.dtype) -> None:
    if (name, dtype) == ("experts", torch.bfloat16):
        return  # rounding can turn a router to other experts, and verify is right to say so
    checks = verify(zoo_model(name, dtype), IDS * 6)  # longer than what goes one by one
    assert len(checks) == 6
    assert [check for check in checks if not check.passed] == []


def test_one_token_passes() -> None:
    assert all(check.passed for check in verify(zoo_model("pre"), IDS[:1]))


def failing(checks: list[Check]) -> list[str]:
    return [check.name.split(":")[0] for check in checks if not check.passed]


def test_a_wrong_recorder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = module.Recorder.attend

    def wrong(self: module.Recorder, *args: object) -> Tensor:
        return right(self, *args) * 1.001  # type: ignore[arg-type]

    monkeypatch.setattr(module.Recorder, "attend", wrong)
    assert "logits" in failing(verify(zoo_model("pre", torch.float32), IDS))


def test_a_leak_and_a_wrong_sum_are_found() -> None:
    sums = Sums()
    sums.attention(Rows(0, torch.tensor([0, 1]), 0, torch.tensor([[[0.9, 0.1], [0.5, 0.4]]])))
    assert sums.leak == pytest.approx(0.1) and sums.error == pytest.approx(0.1, abs=1e-6)


def test_what_is_no_number_does_not_pass() -> None:
    assert not Check("x", math.nan, 1.0).passed and Check("x", 1.0, 1.0).passed


def test_memory_follows_the_question() -> None:
    config: Config = ZOO["pre"]
    assert Mean(config, 1000).memory() == 4_000_000
    assert Mean(config, 1000, range(10)).memory() == 40_000
    everything = estimate(config, 4000, [Mean(config, 4000)])
    one = estimate(config, 4000, [Reads(config, 4000, 3999)])
    assert everything - one > 0.9 * 4 * 4000**2
    assert estimate(config, 8000, []) < 4 * 8000**2
