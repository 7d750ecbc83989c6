"""Explain on checkpoints of every family, beside transformers' attention in the open."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cases import CASES, QUICK, Case
from tests.reference import random_ids, subject
from tests.transformer.test_recording import Everything
from transformer.explain.lens import Lens
from transformer.explain.verify import verify
from transformer.recording import Recorder


def check(case: Case, path: Path) -> None:
    s = subject(case, path)
    ids = random_ids(1, 20)
    everything, lens = Everything(s.model.config, 20), Lens(s.model, ids[0].tolist(), range(20), top=1)
    with torch.inference_mode():
        s.model.hidden(ids, tap=Recorder(everything, lens))
        theirs = s.reference(ids, output_attentions=True)
        for layer, weights in enumerate(theirs.attentions):
            assert (everything.weights[layer] - weights[0]).abs().max() <= 3e-5
        p = theirs.logits[0].softmax(-1)
        following = p[torch.arange(19), ids[0, 1:]]
        assert torch.allclose(lens.actual_p[-1, :-1], following, atol=1e-4)
        assert [c for c in verify(s.model, ids[0].tolist()) if not c.passed] == []


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_rows_equal_those_of_transformers(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_of_every_configuration(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)
