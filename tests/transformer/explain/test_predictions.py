from __future__ import annotations

import math

import pytest
import torch

from tests.transformer.explain.zoo import IDS, ZOO, as_batch, zoo_model
from transformer.explain import predictions as module
from transformer.explain.predictions import predictions


@pytest.mark.parametrize("name", ["pre", "sandwich", "post"])
def test_surprisal_and_alternatives_are_those_of_the_logits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo_model(name)
    monkeypatch.setattr(module, "BLOCK", 3 * ZOO[name].vocab_size)
    found = predictions(model, model.hidden(as_batch())[0], IDS, top=3)
    p = model(as_batch())[0].softmax(-1)
    for i, bits in enumerate(found.surprisal):
        assert bits == pytest.approx(-math.log2(float(p[i, IDS[i + 1]])))
    assert len(found.surprisal) == len(IDS) - 1
    assert torch.equal(found.ids, p.topk(3).indices)
    assert torch.allclose(found.p.double(), p.topk(3).values, atol=1e-6)
