from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transformer import calibrate


@pytest.mark.parametrize(("slow", "pays"), [(torch.bfloat16, False), (torch.float32, True)])
def test_bf16_is_chosen_where_it_is_faster_and_not_where_there_is_an_instruction(
    monkeypatch: pytest.MonkeyPatch, slow: torch.dtype, pays: bool
) -> None:
    now, calls = [0.0], [0]

    def product(x: Tensor, weight: Tensor) -> Tensor:
        calls[0] += 1
        # A busy machine: the first four products, of either kind, take ten times as long.
        now[0] += (2.0 if x.dtype == slow else 1.0) * (10 if calls[0] <= 4 else 1)
        return x

    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(calibrate.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(F, "linear", product)
    assert calibrate.bf16_pays("cpu") is pays
    assert not calibrate.bf16_pays("mps")


def test_bf16_is_not_tried_without_an_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    monkeypatch.setattr(F, "linear", lambda *_: pytest.fail("nothing is to be measured"))
    assert not calibrate.bf16_pays("cpu")
