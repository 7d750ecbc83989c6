from __future__ import annotations

import math

import pytest
import torch

from tests.transformer.explain.zoo import IDS, as_batch, zoo_model
from tests.transformer.test_recording import Everything
from transformer.explain.overview import Entropy, Mean, Sharpest, strongest
from transformer.recording import Recorder, Rows


@pytest.mark.parametrize("name", ["pre", "sandwich", "alibi"])
def test_reductions_are_those_of_all_rows_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, n = zoo_model(name), len(IDS)
    monkeypatch.setattr("transformer.recording.ROWS", 3)
    monkeypatch.setattr("transformer.recording.BLOCK", 1)
    everything = Everything(model.config, n)
    mean, sharpest, entropy = Mean(model.config, n), Sharpest(n), Entropy(model.config, n)
    model(as_batch(), tap=Recorder(everything, mean, sharpest, entropy))
    weights = everything.weights
    assert torch.allclose(mean.weights.double(), weights.mean((0, 1)), atol=1e-6)
    for i in range(n):
        found = sharpest.of(i)
        allowed = [
            (float(weights[layer, head, i, j]), layer, head, j)
            for layer in range(weights.shape[0])
            for head in range(weights.shape[1])
            for j in range(1, i - 1)
        ]
        if not allowed:
            assert found is None
            continue
        weight, *where = max(allowed)
        if weight == 0:  # nothing but the sink, itself and its predecessor is within any window
            assert found is None
            continue
        assert found is not None and [found.layer, found.head, found.token] == where
        assert found.weight == pytest.approx(weight, abs=1e-6)
    for i in range(1, n):
        relative = []
        for layer, spec in enumerate(model.config.layers):
            visible = min(i + 1, spec.window or n)
            for row in weights[layer, :, i]:
                nats = -sum(float(w) * math.log(float(w)) for w in row if w > 0)
                relative.append(nats / math.log(visible))
        assert float(entropy.spread[i]) == pytest.approx(sum(relative) / len(relative), abs=1e-5)
    assert float(entropy.spread[0]) == 0


def test_sink_itself_and_predecessor_are_never_the_sharpest() -> None:
    sharpest = Sharpest(5)
    row = torch.tensor([0.5, 0.02, 0.03, 0.25, 0.2])
    sharpest.attention(Rows(7, torch.tensor([4]), 0, torch.stack([row, row.roll(1)])[:, None]))
    found = sharpest.of(4)
    assert found is not None
    assert (found.layer, found.head, found.token) == (7, 1, 1) and found.weight == 0.5
    assert sharpest.of(3) is None


def test_strongest_leaves_out_the_sink_and_zeros() -> None:
    weights = torch.tensor([0.6, 0.0, 0.1, 0.3])
    assert [j for j, _ in strongest(weights, 5)] == [3, 2]
    assert [j for j, _ in strongest(weights, 1, skip=None)] == [0]
