"""The Recorder gives what the fused kernel gives, and shows the rows that a softmax written out gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.transformer.explain.zoo import IDS, ZOO, as_batch, zoo_model
from transformer import recording
from transformer.cache import KVCache
from transformer.config import Config
from transformer.mask import Mask
from transformer.recording import Observer, Recorder, Rows
from transformer.tap import Fused, Rule


class Everything(Observer):
    """All rows of all layers: (L, H, n, n)."""

    rows = None

    def __init__(self, config: Config, length: int):
        self.weights = torch.zeros(len(config.layers), config.heads, length, length, dtype=torch.float64)

    def attention(self, rows: Rows) -> None:
        self.weights[rows.layer][:, rows.queries, rows.keys] = rows.weights.double()


class Some(Everything):
    rows = (3, 8)


class Spelled(Fused):
    """Attention one number at a time, as the formula says."""

    def __init__(self, config: Config, length: int):
        self.windows = [layer.window or length for layer in config.layers]
        self.weights = torch.zeros(len(config.layers), config.heads, length, length, dtype=torch.float64)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        H, group = q.shape[1], q.shape[1] // k.shape[1]
        for h in range(H):
            for i in range(q.shape[2]):
                first = max(0, i - self.windows[rule.layer] + 1)
                scores = torch.stack([q[0, h, i] @ k[0, h // group, j] for j in range(first, i + 1)]) * rule.scale
                if rule.softcap:
                    scores = rule.softcap * (scores / rule.softcap).tanh()
                if rule.bias is not None:  # minus the distance, as the paper has it
                    slope = rule.bias[0, h, 0, 1] - rule.bias[0, h, 0, 0]
                    scores = scores - slope * torch.arange(i - first, -1, -1)
                e = scores.exp()
                self.weights[rule.layer, h, i, first : i + 1] = e / e.sum()
        return super().attend(q, k, v, mask, rule)


@pytest.mark.parametrize("name", ZOO)
def test_rows_are_those_of_the_formula_and_logits_those_of_the_kernel(name: str) -> None:
    model, n = zoo_model(name), len(IDS)
    everything, spelled = Everything(model.config, n), Spelled(model.config, n)
    logits = model(as_batch(), tap=Recorder(everything))
    assert (logits - model(as_batch())).abs().max() <= 1e-10
    model(as_batch(), tap=spelled)
    assert (everything.weights - spelled.weights).abs().max() <= 1e-12
    assert (everything.weights.sum(-1) - 1).abs().max() <= 1e-12
    assert not everything.weights.triu(1).any()


@pytest.mark.parametrize("name", ZOO)
def test_rows_captured_while_decoding_are_the_same(name: str) -> None:
    model, n = zoo_model(name), len(IDS)
    whole, steps = Everything(model.config, n), Everything(model.config, n)
    model(as_batch(), tap=Recorder(whole))
    cache = KVCache(model.config, step=4, dtype=torch.float64)  # rings of the windowed layers wrap several times
    for part in as_batch().split([4, 3, 1, 1, 2, 1, 1], dim=1):
        model(part, cache, Recorder(steps))
    assert (whole.weights - steps.weights).abs().max() <= 1e-10


@pytest.mark.parametrize("name", ["pre", "sandwich", "alibi"])
def test_blocks_do_not_change_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, n = zoo_model(name), len(IDS)
    whole, blocks = Everything(model.config, n), Everything(model.config, n)
    model(as_batch(), tap=Recorder(whole))
    monkeypatch.setattr(recording, "ROWS", 2)
    monkeypatch.setattr(recording, "BLOCK", 1)
    model(as_batch(), tap=Recorder(blocks))
    assert (whole.weights - blocks.weights).abs().max() <= 1e-12


def test_an_observer_sees_only_the_rows_and_layers_it_asked_for() -> None:
    model, n = zoo_model("pre"), len(IDS)
    whole, some = Everything(model.config, n), Some(model.config, n)
    some.layers = (1,)
    model(as_batch(), tap=Recorder(whole))
    logits = model(as_batch(), tap=Recorder(some))
    assert torch.equal(logits, model(as_batch()))  # rows that nobody wants leave the kernel's output alone
    expected = torch.zeros_like(whole.weights)
    expected[1][:, [3, 8]] = whole.weights[1][:, [3, 8]]
    assert torch.allclose(some.weights, expected, atol=1e-12)
    both = Some(model.config, n), Everything(model.config, n)
    model(as_batch(), tap=Recorder(*both))
    assert torch.allclose(both[0].weights[:, :, [3, 8]], whole.weights[:, :, [3, 8]])
    assert not both[0].weights[:, :, 4].any()
    assert torch.equal(both[1].weights, whole.weights)


@pytest.mark.parametrize("name", ZOO)
def test_fp32_promise(name: str) -> None:
    model, n = zoo_model(name, torch.float32), len(IDS)
    everything = Everything(model.config, n)
    logits, fused = model(as_batch(), tap=Recorder(everything)), model(as_batch())
    assert (logits - fused).abs().max() <= 1e-5 * max(10.0, float(fused.abs().max()))
    assert (everything.weights.sum(-1) - 1).abs().max() <= 1e-6


def test_half_precision_weights_are_taken_in_fp32() -> None:
    model, n = zoo_model("pre", torch.bfloat16), len(IDS)
    everything = Everything(model.config, n)
    assert model(as_batch(), tap=Recorder(everything)).dtype == torch.bfloat16
    assert (everything.weights.sum(-1) - 1).abs().max() <= 1e-6
