"""Dropout: as many numbers as asked for, the rest larger, and the same ones for the same seed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from transformer.dropout import Dropout


def dropped(rate: float, x: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return Dropout(rate).write(0, "mlp", x)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_mean_stays(rate: float, dtype: torch.dtype) -> None:
    y = dropped(rate, torch.ones(100, 1001, dtype=dtype)).double()
    assert (y == 0).double().mean().item() == pytest.approx(rate, abs=0.005)
    assert y[y != 0].unique().tolist() == [pytest.approx(1 / (1 - rate), rel=1e-4 if dtype is torch.float32 else 1e-2)]


def test_every_row_and_column_is_met() -> None:
    kept = dropped(0.5, torch.ones(400, 401)) != 0
    for dim in (0, 1):
        share = kept.double().mean(dim)
        assert ((share > 0.35) & (share < 0.65)).all()


def test_what_is_dropped_follows_from_the_seed() -> None:
    x = torch.ones(7, 11)
    assert torch.equal(dropped(0.5, x), dropped(0.5, x))
    assert not torch.equal(dropped(0.5, x), dropped(0.5, x, seed=1))


def test_what_is_dropped_learns_nothing() -> None:
    x = torch.ones(50, 3, requires_grad=True)
    y = dropped(0.3, x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
