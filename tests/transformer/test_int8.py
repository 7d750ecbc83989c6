"""Eight bits: as near to the matrix as steps of 1/127 allow, and the same whoever shares the batch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.tiny import tiny_config, tiny_model
from transformer.config import Experts
from transformer.errors import InputError
from transformer.int8 import Codes, Int8Linear, matrices, quantize_rows, replace_matrix
from transformer.model import Transformer


def test_a_row_is_off_by_half_a_step_at_most() -> None:
    weight = torch.randn(20, 50, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 20)[:, None]
    matrix = quantize_rows(weight)
    codes, steps, _ = matrix
    assert codes.dtype == torch.int8 and int(codes.abs().max()) == 127
    assert bool(((matrix.numbers() - weight).abs() <= steps * 0.5001).all())
    assert bool((codes.abs().amax(1) == 127).all())  # every row uses all of its range


def test_a_row_of_zeros_stays_one() -> None:
    codes, steps, _ = quantize_rows(torch.zeros(2, 4))
    assert not codes.any() and not steps.any()


def test_numbers_of_a_group_share_scale_and_offset() -> None:
    codes = torch.tensor([[1, -2, 3, 4], [0, 5, -6, 7]], dtype=torch.int8)
    matrix = Codes(codes, torch.tensor([[0.5, 2.0], [1.0, 10.0]]), torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    assert matrix.numbers().tolist() == [[0.5, -1.0, 7.0, 9.0], [-1.0, 4.0, -60.0, 70.0]]
    assert matrix.rows(slice(1, 2)).numbers().tolist() == [[-1.0, 4.0, -60.0, 70.0]]


def linear(bias: bool = True) -> Int8Linear:
    random = torch.Generator().manual_seed(0)
    matrix = quantize_rows(torch.randn(33, 40, generator=random))
    return Int8Linear(matrix, torch.nn.Parameter(torch.randn(33, generator=random)) if bias else None, {})


@pytest.mark.parametrize("rows", [1, 8, 9, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_product_is_that_of_the_matrix(rows: int, dtype: torch.dtype) -> None:
    part = linear().to(dtype)
    x = torch.randn(2, rows, 40, dtype=dtype, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(part(x), F.linear(x, part.weight.to(dtype), part.bias), rtol=1e-5, atol=1e-4)


def test_a_large_matrix_is_taken_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    part, x = linear(), torch.randn(20, 40, generator=torch.Generator().manual_seed(1))
    whole = part(x)
    monkeypatch.setattr("transformer.int8.BLOCK", 40 * 5)
    torch.testing.assert_close(part(x), whole, rtol=1e-6, atol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    part, x = linear(), torch.randn(12, 40, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([part(row[None]) for row in x])
    x[3] *= 1000
    together = part(x)
    keep = [i for i in range(12) if i != 3]
    torch.testing.assert_close(together[keep], alone[keep], rtol=1e-5, atol=1e-5)


def test_gradients_reach_what_came_before() -> None:
    part, x = linear(), torch.randn(3, 40, requires_grad=True)
    part(x).sum().backward()
    torch.testing.assert_close(x.grad, part.weight.sum(0).expand(3, 40), rtol=1e-4, atol=1e-4)


def quantized(model: Transformer) -> Transformer:
    modules = dict(model.named_modules())
    for name in matrices(model):
        replace_matrix(model, name, quantize_rows(modules[name.removesuffix(".weight")].weight))
    return model


@pytest.mark.parametrize("changes", [{}, {"tied": True}, {"gated": False}, {"embed_width": 16}, {"qkv_bias": True}])
def test_a_decoder_in_eight_bits_is_nearly_the_same(changes: dict[str, object]) -> None:
    config = tiny_config(**changes)
    plain, eight = tiny_model(config), quantized(tiny_model(config))
    names = {name.rpartition(".")[2] for name, module in eight.named_modules() if isinstance(module, Int8Linear)}
    assert names >= {"qkv", "out", "down", "head"}
    ids = torch.randint(0, 320, (1, 30), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected, found = plain(ids), eight(ids)
    assert float((found - expected).std() / expected.std()) < 0.05
    assert torch.equal(eight.embed.weight, plain.embed.weight)


def test_a_mixture_of_experts_is_refused() -> None:
    layers = tuple(
        layer.__class__(**{**vars(layer), "experts": Experts(count=2, active=1, renormalise=True)})
        for layer in tiny_config().layers
    )
    with pytest.raises(InputError, match="mixture of experts"):
        matrices(tiny_model(tiny_config(layers=layers)))
