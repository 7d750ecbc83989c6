"""Ways back that are written out by hand, against differences and against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from transformer.config import Norm
from transformer.data import IGNORED
from transformer.loss import Told, cross_entropy
from transformer.norm import RMSNorm
from transformer.position import Rotation


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("shape", [(6,), (2, 6)], ids=["one gain", "a gain for each head"])
@pytest.mark.parametrize("spec", [Norm(), Norm(gain=False), Norm(unit_offset=True)], ids=["gain", "none", "offset"])
def test_rms_norm(shape: tuple[int, ...], spec: Norm) -> None:
    norm = RMSNorm(shape, spec).double()
    gain = [] if norm.weight is None else [random(*shape).requires_grad_()]

    def forward(x: torch.Tensor, *gain: torch.Tensor) -> torch.Tensor:
        part = x[..., :6]  # as queries are a part of a longer row
        return torch.func.functional_call(norm, dict(zip(["weight"], gain, strict=False)), (part,))

    assert gradcheck(forward, (random(2, 3, 2, 8).requires_grad_(), *gain))


@pytest.mark.parametrize("dim", [6, 4], ids=["all of a head", "part of a head"])
def test_rotation(dim: int) -> None:
    angles = random(1, 3, 1, dim // 2)
    rotate = Rotation(angles.cos(), angles.sin())
    assert gradcheck(lambda x: rotate(x[..., :6]), random(2, 3, 2, 8).requires_grad_())


@pytest.mark.parametrize("voice", [None, 0.0, 0.75, 1.0])
def test_cross_entropy(voice: float | None) -> None:
    targets = torch.tensor([3, IGNORED, 0, 4, IGNORED])
    ours, theirs = (random(5, 7).requires_grad_() for _ in range(2))
    teacher, learnt = random(5, 7).flip(1), targets != IGNORED
    loss = cross_entropy(ours, targets, None if voice is None else Told(teacher, voice))
    expected = F.cross_entropy(theirs, targets, ignore_index=IGNORED, reduction="sum")
    if voice is not None:
        as_told = F.cross_entropy(theirs[learnt], teacher[learnt].softmax(-1), reduction="sum")
        expected = (1 - voice) * expected + voice * as_told
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    (loss * 0.3).backward()
    (expected * 0.3).backward()
    assert ours.grad is not None and theirs.grad is not None
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-12, atol=1e-15)
    assert not ours.grad[targets == IGNORED].any()
