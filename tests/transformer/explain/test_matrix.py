from __future__ import annotations

import pytest
import torch

from tests.transformer.explain.zoo import IDS, as_batch, zoo_model
from tests.transformer.test_recording import Everything
from transformer.explain.by_hand import by_hand
from transformer.explain.matrix import Matrix
from transformer.explain.reading import ReadBy, Reads
from transformer.recording import Recorder


@pytest.mark.parametrize("name", ["pre", "sandwich", "alibi"])
def test_chosen_matrices_and_means(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, n = zoo_model(name), len(IDS)
    monkeypatch.setattr("transformer.recording.ROWS", 3)
    monkeypatch.setattr("transformer.recording.BLOCK", 1)
    everything = Everything(model.config, n)
    rows = [2, 5, 12]
    matrix = Matrix(model.config, n, [1, "mean"], [3, "mean"], rows)
    model.hidden(as_batch(), tap=Recorder(everything, matrix))
    weights = everything.weights[:, :, rows]
    expected = {
        (1, 3): weights[1, 3],
        (1, "mean"): weights[1].mean(0),
        ("mean", 3): weights[:, 3].mean(0),
        ("mean", "mean"): weights.mean((0, 1)),
    }
    assert set(matrix.weights) == set(expected) and matrix.chosen == list(expected)
    for key, value in expected.items():
        assert torch.allclose(matrix.weights[key].double(), value, atol=1e-6)
    assert matrix.memory() == 4 * 4 * 3 * n


def test_only_the_chosen_layers_are_opened() -> None:
    model = zoo_model("pre")
    matrix = Matrix(model.config, len(IDS), [1], [0], range(len(IDS)))
    assert matrix.layers == {1}
    assert Matrix(model.config, len(IDS), ["mean"], [0], [0]).layers is None


@pytest.mark.parametrize("name", ["pre", "sandwich"])
def test_one_token_reads_and_is_read(name: str) -> None:
    model, n, token = zoo_model(name), len(IDS), 6
    everything, reads, read_by = (
        Everything(model.config, n),
        Reads(model.config, n, token),
        ReadBy(model.config, n, token),
    )
    model.hidden(as_batch(), tap=Recorder(reads, read_by))
    model.hidden(as_batch(), tap=Recorder(everything))
    assert torch.allclose(reads.weights.double(), everything.weights[:, :, token, : token + 1], atol=1e-6)
    for i in range(token + 1, n):
        column = everything.weights[:, :, i, token]
        assert float(read_by.mean[i]) == pytest.approx(float(column.mean()), abs=1e-6)
        most = read_by.sharpest(i)
        assert most.weight == pytest.approx(float(column.max()), abs=1e-6)
        if float(column.max()):
            assert float(column[most.layer, most.head]) == pytest.approx(most.weight, abs=1e-6)


@pytest.mark.parametrize("name", ["pre", "sandwich", "alibi", "output"])
def test_by_hand_is_what_the_model_computes(name: str) -> None:
    model, n, layer, head, token = zoo_model(name), len(IDS), 1, 2, 9
    everything = Everything(model.config, n)
    model.hidden(as_batch(), tap=Recorder(everything))
    found = by_hand(model, as_batch(), layer, head, token)
    assert torch.allclose(found.weight, everything.weights[layer, head, token, : token + 1], atol=1e-12)
    assert found.error < 1e-10
    assert torch.allclose(found.dot, found.k @ found.q)
    assert torch.allclose(found.output, (found.weight[:, None] * found.v).sum(0))
    D = model.config.head_dim
    part = model.blocks[layer].attention.out.weight[:, head * D : (head + 1) * D]
    assert float(found.contribution[4]) == pytest.approx(float((part @ (found.weight[4] * found.v[4])).norm()))


def test_by_hand_shows_cap_bias_and_mask() -> None:
    capped = by_hand(zoo_model("sandwich"), as_batch(), 0, 0, 9)
    assert capped.softcap == 3.0 and float(capped.capped.abs().max()) <= 3.0
    assert torch.isinf(capped.score[:5]).all() and not torch.isinf(capped.score[5:]).any()  # a window of five
    assert not capped.weight[:5].any()
    biased = by_hand(zoo_model("alibi"), as_batch(), 0, 0, 9)
    assert biased.bias is not None and float(biased.bias[9] - biased.bias[8]) > 0
    plain = by_hand(zoo_model("pre"), as_batch(), 0, 0, 9)
    assert plain.bias is None and plain.softcap is None and torch.equal(plain.capped, plain.scaled)
