from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.transformer.explain.zoo import ZOO, as_batch, zoo_model
from transformer.explain.attribution import Attribution, Written, attribute
from transformer.explain.target import Target
from transformer.model import Transformer
from transformer.recording import Recorder
from transformer.tap import Fused


def attributed(model: Transformer, target: Target) -> Attribution:
    written = Written(model, target.row)
    x = model.hidden(as_batch(), tap=Recorder(written))[0]
    return attribute(model, written, x, target)


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("foil", [None, 7])
def test_parts_add_up_to_the_logit_before_any_cap(name: str, foil: int | None) -> None:
    model = zoo_model(name)
    found = attributed(model, Target(9, 120, foil))
    logits = model(as_batch())[0, 9]
    if (cap := model.config.logit_softcap) is not None:
        logits = cap * torch.atanh(logits / cap)
    expected = logits[120] - (logits[foil] if foil is not None else 0.0)
    assert found.logit == pytest.approx(float(expected), abs=1e-9)
    assert abs(found.gap) < 1e-9
    kinds = [part.kind for part in found.parts]
    assert kinds.count("head") == len(model.blocks) * model.config.heads
    assert kinds.count("mlp") == len(model.blocks) and kinds.count("embedding") == 1


@pytest.mark.parametrize("name", ZOO)
def test_fp32_gap_is_within_the_promise(name: str) -> None:
    assert abs(attributed(zoo_model(name, torch.float32), Target(12, 120)).gap) < 1e-3


class Without(Fused):
    """Nothing of one layer's MLP enters the stream."""

    def __init__(self, layer: int):
        self.layer = layer

    def write(self, layer: int, part: str, x: Tensor) -> Tensor:
        return torch.zeros_like(x) if (layer, part) == (self.layer, "mlp") else x


@pytest.mark.parametrize("name", ["pre", "sandwich", "scaled", "narrow"])
def test_the_last_mlp_is_worth_what_the_logit_loses_without_it(name: str) -> None:
    """With RMS norms the frozen scale is the ratio of the two streams' sizes, so the loss can be told apart."""
    model = zoo_model(name)
    target, last = Target(9, 120), len(model.blocks) - 1
    full = model.hidden(as_batch())[0, 9]
    less = model.hidden(as_batch(), tap=Without(last))[0, 9]
    eps = model.config.norm.eps
    ratio = ((less.square().mean() + eps) / (full.square().mean() + eps)).sqrt()
    expected = target.reader(model)(full.expand(1, 10, -1)) - target.reader(model)(less.expand(1, 10, -1)) * ratio
    (share,) = [p.share for p in attributed(model, target).parts if p.kind == "mlp" and p.layer == last]
    assert share == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize("name", ["pre", "parallel"])
def test_a_head_is_worth_its_reading_through_its_part_of_the_projection(name: str) -> None:
    model = zoo_model(name)
    target, layer, head, D = Target(9, 120), 1, 2, model.config.head_dim
    out = model.blocks[layer].attention.out
    seen: list[Tensor] = []
    hook = out.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x = model.hidden(as_batch())[0, 9]
    hook.remove()
    reading = seen[0][0, 9, head * D : (head + 1) * D]
    vector = out.weight[:, head * D : (head + 1) * D] @ reading
    norm = model.final_norm
    if model.config.norm.kind == "layer":
        carried = (vector - vector.mean()) / (x.var(correction=0) + norm.eps).sqrt() * norm.weight
    else:
        carried = vector / (x.square().mean() + norm.eps).sqrt() * norm.weight
    (share,) = [p.share for p in attributed(model, target).parts if (p.kind, p.layer, p.head) == ("head", layer, head)]
    assert share == pytest.approx(float(carried @ model.head.weight[120]), abs=1e-9)
