from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.transformer.explain.zoo import IDS, ZOO, as_batch, zoo_model
from transformer.explain.lens import Lens
from transformer.model import Transformer
from transformer.recording import Recorder


def shorter(model: Transformer, layers: int) -> Transformer:
    """The same model without its last blocks."""
    cut = Transformer(replace(model.config, layers=model.config.layers[:layers])).double()
    cut.load_state_dict(model.state_dict(), strict=False)
    cut.tie()
    return cut.eval().requires_grad_(False)


@pytest.mark.parametrize("name", ZOO)
def test_lens_is_what_a_model_cut_after_that_layer_predicts(name: str) -> None:
    model = zoo_model(name)
    positions = [0, 4, 11]
    lens = Lens(model, IDS, positions, top=2)
    model.hidden(as_batch(), tap=Recorder(lens))
    for depth in range(1, len(model.blocks) + 1):
        p = shorter(model, depth)(as_batch())[0, positions].softmax(-1)
        assert torch.equal(lens.ids[depth], p.topk(2).indices)
        assert torch.allclose(lens.p[depth].double(), p.topk(2).values, atol=1e-6)
        for place, i in enumerate(positions):
            actual = p[place, IDS[i + 1]]
            assert float(lens.actual_p[depth, place]) == pytest.approx(float(actual), abs=1e-6)
            assert int(lens.actual_rank[depth, place]) == 1 + int((p[place] > actual).sum())


def test_the_first_row_reads_the_embedding() -> None:
    model = zoo_model("pre")
    lens = Lens(model, IDS, [3], top=1)
    model.hidden(as_batch(), tap=Recorder(lens))
    expected = model.logits(model.embed(torch.tensor([IDS[3]])))
    assert int(lens.ids[0, 0, 0]) == int(expected.argmax())
