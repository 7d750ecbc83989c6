"""Eight bits on both sides: near to the model, whichever way the numbers are made."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.tiny import tiny_config, tiny_model
from transformer.coarse import CoarseLinear, coarsen
from transformer.int8 import quantize_rows, replace_matrix
from transformer.model import Transformer


def some_ids(seed: int) -> Tensor:
    return torch.randint(0, 320, (4, 20), generator=torch.Generator().manual_seed(seed))


def far(model: Transformer, exact: Transformer) -> float:
    with torch.no_grad():
        p, q = (m(some_ids(1)).log_softmax(-1) for m in (exact, model))
    return float((p.exp() * (p - q)).sum(-1).mean())


def with_large_columns() -> Transformer:
    """As in trained models, a few numbers of the stream are many times as large as the others."""
    model = tiny_model()
    with torch.no_grad():
        for block in model.blocks:
            for norm in (block.attention_norm, block.mlp_norm):
                assert isinstance(norm.weight, Tensor)
                norm.weight[3] *= 100
            for linear in (block.attention.qkv, block.mlp.gate_up):  # type: ignore[union-attr]
                linear.weight[:, 3] /= 100  # type: ignore[union-attr, index, operator]
    return model


def test_all_products_but_the_last_are_coarse_and_near(library: ctypes.CDLL) -> None:
    exact, plain, native = tiny_model(), tiny_model(), tiny_model()
    for model, given in ((plain, None), (native, library)):
        coarsen(model, some_ids(0), given)
        kinds = {name: type(module) for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        assert kinds.keys() == {"head"}
        assert 0 < far(model, exact) < 5e-3
    with torch.no_grad():
        torch.testing.assert_close(native(some_ids(1)), plain(some_ids(1)), rtol=0, atol=0.02)


def test_a_few_large_columns_do_no_harm() -> None:
    exact, eased, plain = with_large_columns(), with_large_columns(), with_large_columns()
    coarsen(eased, some_ids(0))
    for name, linear in list(plain.named_modules()):
        if isinstance(linear, nn.Linear) and name != "head":
            replace_matrix(plain, f"{name}.weight", quantize_rows(linear.weight.detach()), CoarseLinear)
            part = plain.get_submodule(name)
            assert isinstance(part, CoarseLinear)
            part.prepare(torch.ones(linear.in_features), None)
    assert far(eased, exact) < 0.1 * far(plain, exact)


@pytest.mark.parametrize("native", [False, True])
def test_rows_of_zeros_biases_and_sections(library: ctypes.CDLL, native: bool) -> None:
    model, exact = (tiny_model(replace(tiny_config(), qkv_bias=True, mlp_bias=True)) for _ in range(2))
    coarsen(model, some_ids(0), library if native else None)
    x = torch.randn(2, 3, model.config.width, generator=torch.Generator().manual_seed(0))
    x[1, 2] = 0
    for name in ("blocks.0.attention.qkv", "blocks.0.mlp.gate_up"):
        ours, theirs = model.get_submodule(name), exact.get_submodule(name)
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=0.06)
            assert torch.equal(ours(x)[1, 2], theirs(x)[1, 2])  # nothing but the bias
        parts = [part.shape for part in ours.split(ours(x))]  # type: ignore[operator]
        assert parts == [part.shape for part in theirs.split(theirs(x))]  # type: ignore[operator]
