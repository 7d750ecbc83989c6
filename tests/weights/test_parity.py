"""The numbers promised, for every family: one configuration each, and all of `python -m tests.parity` when slow."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from transformers.models.falcon import modeling_falcon

from tests import reference
from tests.cases import CASES, QUICK, Case
from tests.parity import broken, of_case
from weights.checkpoint import load_model, open_checkpoint
from weights.families.registry import FAMILIES


def test_every_family_has_a_case() -> None:
    assert {case.family for case in CASES} | {"tfm"} == set(FAMILIES)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_promises(case: Case) -> None:
    assert not broken(of_case(case, length=18))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_promises_of_every_configuration(case: Case) -> None:
    assert not broken(of_case(case))


@pytest.mark.parametrize("name", ["alibi", "alibi_six_heads"])
def test_falcon_with_alibi_as_fused_attention_has_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tests hold only against a repaired reference; this one against an untouched one."""
    monkeypatch.setattr(modeling_falcon, "build_alibi_tensor", reference.build_alibi)
    case = next(case for case in CASES if str(case) == f"falcon/{name}")
    reference.write_reference(case, tmp_path)
    fused = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa").eval()
    ids = reference.random_ids(2, 40)
    with torch.inference_mode():
        assert reference.distance(load_model(open_checkpoint(tmp_path))(ids), fused(ids).logits).kept
