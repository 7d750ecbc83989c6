"""Rollout, norms, value zeroing, ablation: each against the same thing done the long way."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.transformer.explain.zoo import IDS, ZOO, as_batch, zoo_model
from tests.transformer.test_recording import Everything
from transformer.explain.ablation import Ablate, outcome, random_heads
from transformer.explain.comparison import agreement, spearman
from transformer.explain.norms import Norms
from transformer.explain.rollout import Rollout
from transformer.explain.stream import Stream
from transformer.explain.zeroing import Zeroing
from transformer.mask import Mask
from transformer.recording import Recorder
from transformer.tap import Fused, Rule


@pytest.mark.parametrize("name", ["pre", "sandwich"])
def test_rollout_multiplies_layers_mixed_with_the_identity(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, n = zoo_model(name), len(IDS)
    monkeypatch.setattr("transformer.recording.ROWS", 4)
    monkeypatch.setattr("transformer.recording.BLOCK", 1)
    everything, rollout = Everything(model.config, n), Rollout(model.config, n)
    model.hidden(as_batch(), tap=Recorder(everything, rollout))
    expected = torch.eye(n, dtype=torch.float64)
    for layer in everything.weights:
        expected = (layer.mean(0) + torch.eye(n)) / 2 @ expected
    assert torch.allclose(rollout.rolled.double(), expected, atol=1e-6)
    assert torch.allclose(rollout.even.sum(1), torch.ones(n))
    if name == "pre":
        alike = torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]
        mixed = (alike + torch.eye(n)) / 2
        assert torch.allclose(rollout.even, mixed @ mixed, atol=1e-6)


@pytest.mark.parametrize("name", ZOO)
def test_norms_are_lengths_of_what_is_sent(name: str) -> None:
    model, token = zoo_model(name), 9
    everything, norms = Everything(model.config, len(IDS)), Norms(model, token)
    inputs: dict[int, Tensor] = {}
    for layer, block in enumerate(model.blocks):
        block.attention.qkv.register_forward_hook(lambda m, i, o, layer=layer: inputs.__setitem__(layer, o))
    model.hidden(as_batch(), tap=Recorder(everything, norms))
    c = model.config
    for layer, block in enumerate(model.blocks):
        v = inputs[layer][0, :, -c.kv_heads * c.head_dim :].unflatten(1, (c.kv_heads, c.head_dim))
        for j in range(token + 1):
            read = torch.cat(
                [everything.weights[layer, h, token, j] * v[j, h * c.kv_heads // c.heads] for h in range(c.heads)]
            )
            assert float(norms.lengths[layer, j]) == pytest.approx(float((block.attention.out.weight @ read).norm()))


class ValueZeroed(Fused):
    """One token's value is nothing, in one layer."""

    def __init__(self, layer: int, token: int):
        self.layer, self.token = layer, token

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
        if rule.layer == self.layer:
            v = v.clone()
            v[:, :, self.token] = 0
        return super().attend(q, k, v, mask, rule)


class Behind(Stream):
    """The stream behind one block at one token."""

    def __init__(self, model, layer: int, token: int):  # type: ignore[no-untyped-def]
        super().__init__(model, [token], lambda here, x: self.keep(here, x))
        self.layer = layer

    def keep(self, layer: int, x: Tensor) -> None:
        if layer == self.layer:
            self.kept = x[0]


@pytest.mark.parametrize("name", ZOO)
def test_zeroing_equals_running_the_model_without_the_value(name: str) -> None:
    model, token = zoo_model(name), 6
    zeroing = Zeroing(model, token)
    model.hidden(as_batch(), tap=Recorder(zeroing))
    for layer in range(len(model.blocks)):
        real = Behind(model, layer, token)
        model.hidden(as_batch(), tap=Recorder(real))
        for j in range(token + 1):
            tap, without = ValueZeroed(layer, j), Behind(model, layer, token)
            watch = Recorder(without)
            watch.attend = tap.attend  # type: ignore[method-assign]
            model.hidden(as_batch(), tap=watch)
            expected = 1 - F.cosine_similarity(real.kept, without.kept, dim=0)
            assert float(zeroing.turned[layer, j]) == pytest.approx(float(expected), abs=1e-6)
    assert float(zeroing.shares().sum()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", ZOO)
def test_ablating_a_head_is_taking_its_columns_from_the_projection(name: str) -> None:
    model = zoo_model(name)
    ablated = model(as_batch(), tap=Ablate([(1, 2)]))
    D = model.config.head_dim
    model.blocks[1].attention.out.weight[:, 2 * D : 3 * D] = 0
    assert (ablated - model(as_batch())).abs().max() <= 1e-10


def test_mean_ablation_does_not_look_ahead() -> None:
    model, heads = zoo_model("pre"), [(0, 1), (1, 0)]
    other = as_batch([*IDS[:8], 1, 2, 3, 4, 5])
    a, b = (model(ids, tap=Ablate(heads, "mean")) for ids in (as_batch(), other))
    assert (a[:, :8] - b[:, :8]).abs().max() <= 1e-10
    assert (a[:, :8] - model(as_batch())[:, :8]).abs().max() > 1e-3
    assert (a[:, 0] - model(as_batch())[:, 0]).abs().max() <= 1e-10  # the mean of one reading is that reading


def test_outcome_is_log_p_of_each_next_token() -> None:
    model = zoo_model("pre")
    found = outcome(model, IDS, 33, [(0, 0)], "zero")
    logp = model(as_batch(), tap=Ablate([(0, 0)]))[0].log_softmax(-1)
    expected = [float(logp[i, token]) for i, token in enumerate(IDS[1:])]
    assert found.tokens.tolist() == pytest.approx(expected)
    assert found.next == pytest.approx(float(logp[-1, 33]))


def test_controls_are_other_heads_and_the_same_every_time() -> None:
    config = ZOO["pre"]
    draws = random_heads(config, [(0, 1), (1, 3)], 20, seed=0)
    assert all(len(set(draw)) == 2 and not {(0, 1), (1, 3)} & set(draw) for draw in draws)
    assert draws == random_heads(config, [(0, 1), (1, 3)], 20, seed=0) != random_heads(config, [(0, 1)], 20, seed=1)
    every = [(layer, head) for layer in range(2) for head in range(4)]
    assert random_heads(config, every, 2, seed=0) == [[], []]


def test_spearman() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 31]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(9 / math.sqrt(4.5 * 5) / 2, abs=1e-12)
    assert spearman([1, 2], [2, 1]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    found = agreement({"a": [0.1, -0.5, 0.3], "b": [1, 5, 3], "c": [3, 2, 1]})
    assert found["a", "b"] == pytest.approx(1) and found["b", "c"] == pytest.approx(-0.5)
