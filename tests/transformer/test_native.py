"""The compiled library does what the parts do that it stands in for."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.tiny import tiny_config, tiny_model
from transformer.accelerate import accelerate
from transformer.cache import KVCache
from transformer.config import Config, Experts, Layer, Norm, Rope
from transformer.generate import Request, generate, new_cache, prefill, step
from transformer.int8 import Codes, matrices, quantize_rows, replace_matrix
from transformer.model import Transformer
from transformer.native import FEW, SPAN, NativeMatrix, sgemm
from transformer.sampling import Sampling
from transformer.tap import Fused

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 64, 65)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("N", "K"), [(1, 1), (3, 13), (16, 64), (37, 100), (64, 129), (80, 300)])
def test_products_are_those_of_torch(library: ctypes.CDLL, rows: int, N: int, K: int) -> None:
    random = torch.Generator().manual_seed(rows * N + K)
    x, weight = torch.randn(rows, K, generator=random), torch.randn(N, K, generator=random)
    bias, eight_bits = torch.randn(N, generator=random), quantize_rows(weight)
    for b in (None, bias):
        found = NativeMatrix(library, b, numbers=weight)(x)
        torch.testing.assert_close(found, F.linear(x, weight, b), rtol=1e-5, atol=1e-5 * K**0.5)
        eight = NativeMatrix(library, b, **eight_bits._asdict())(x)
        # Of many rows sixteen bits are multiplied, a step of which is a part of the row's largest number.
        close = (1e-5 if rows <= FEW else 3e-4) * K**0.5
        torch.testing.assert_close(eight, F.linear(x, eight_bits.numbers(), b), rtol=1e-5, atol=close)


@pytest.mark.parametrize("rows", [1, 3, 8, 9, 64])
@pytest.mark.parametrize(("K", "group"), [(64, 32), (48, 16), (256, 16), (576, 32), (12, 4)])
@pytest.mark.parametrize("offset", [False, True])
def test_products_with_codes_in_groups(library: ctypes.CDLL, rows: int, K: int, group: int, offset: bool) -> None:
    random = torch.Generator().manual_seed(rows + K)
    codes = torch.randint(-128, 128, (37, K), generator=random, dtype=torch.int8)
    scales, offsets = torch.randn(2, 37, K // group, generator=random) / 128
    matrix = Codes(codes, scales, offsets if offset else None)
    x = torch.randn(rows, K, generator=random)
    found = NativeMatrix(library, None, **matrix._asdict())(x)
    torch.testing.assert_close(found, F.linear(x, matrix.numbers()), rtol=1e-5, atol=1e-5 * K**0.5)


def test_a_product_keeps_the_shape_in_front(library: ctypes.CDLL) -> None:
    weight = torch.randn(5, 7)
    assert NativeMatrix(library, None, numbers=weight)(torch.randn(2, 3, 7)).shape == (2, 3, 5)


def test_what_the_library_cannot_read_is_left_to_torch(library: ctypes.CDLL) -> None:
    matrix = NativeMatrix(library, None, numbers=torch.randn(4, 6))
    assert matrix.takes(torch.randn(2, 6))
    assert not matrix.takes(torch.randn(2, 6).double())
    assert not matrix.takes(torch.randn(2, 6).bfloat16())
    assert not matrix.takes(torch.randn(6, 2).t())
    assert not matrix.takes(torch.randn(2, 6, requires_grad=True))


def test_without_a_blas_many_rows_of_numbers_are_left_to_torch(library: ctypes.CDLL) -> None:
    weight, blas = torch.randn(4, 6), sgemm(library).value
    try:
        sgemm(library).value = None
        numbers = NativeMatrix(library, None, numbers=weight)
        codes = NativeMatrix(library, None, **quantize_rows(weight)._asdict())
        assert numbers.takes(torch.randn(FEW, 6)) and not numbers.takes(torch.randn(FEW + 1, 6))
        assert codes.takes(torch.randn(FEW + 1, 6))
        model = tiny_model(wide_config())
        accelerate(model, library)
        ids = torch.arange(FEW + 1)[None]
        with torch.inference_mode():
            expected = tiny_model(wide_config())(ids)
            torch.testing.assert_close(model(ids, KVCache(model.config)), expected, rtol=0, atol=1e-4)
    finally:
        sgemm(library).value = blas


def wide_config(**changes: Any) -> Config:
    """Heads wide enough for the library."""
    layer = Layer(mlp_width=48, attention_scale=0.25, rope=Rope(dim=16))
    shape: dict[str, Any] = {"heads": 6, "kv_heads": 2, "head_dim": 16, "context": 2048, "layers": (layer,) * 2}
    return tiny_config(**{**shape, **changes})


LAYER = wide_config().layers[0]
CONFIGS = {
    "llama": wide_config(),
    "one key head for all": wide_config(kv_heads=1),
    "a key head each": wide_config(kv_heads=6),
    "groups of two": wide_config(kv_heads=3),
    "heads of 48": wide_config(head_dim=48, layers=(replace(LAYER, rope=Rope(dim=48), attention_scale=48**-0.5),) * 2),
    "heads of 128": wide_config(
        heads=2, head_dim=128, layers=(replace(LAYER, rope=Rope(dim=128), attention_scale=128**-0.5),) * 2
    ),
    "query and key norms": wide_config(qk_norm=Norm()),
    "biases everywhere": wide_config(qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True),
    "half rotated": wide_config(layers=(replace(LAYER, rope=Rope(dim=8)),) * 2),
    "some layers without positions": wide_config(layers=(LAYER, replace(LAYER, rope=None))),
    "no positions": wide_config(layers=(replace(LAYER, rope=None),) * 2),
    "yarn": wide_config(
        layers=(replace(LAYER, rope=Rope(dim=16, scaling="yarn", factor=4.0, original_context=64)),) * 2
    ),
    **{name: wide_config(activation=name) for name in ("gelu_tanh", "gelu", "relu")},
    "a width that fills no register": wide_config(width=27, layers=(replace(LAYER, mlp_width=29),) * 2),
    "tied": wide_config(tied=True),
}


def eight_bits(model: Transformer) -> Transformer:
    modules = dict(model.named_modules())
    for name in matrices(model):
        replace_matrix(model, name, quantize_rows(modules[name.removesuffix(".weight")].weight))
    return model


def run(model: Transformer, chunks: list[list[list[int]]]) -> torch.Tensor:
    """Logits of all tokens, given chunk by chunk to rows that each have a length of their own."""
    cache = KVCache(model.config, len(chunks), capacity=600)
    found = []
    with torch.inference_mode():
        for row, (first, *_) in enumerate(chunks):
            found.append(model(torch.tensor([first]), cache.rows(row, row + 1))[0])
        for several in zip(*(rest for _, *rest in chunks), strict=True):
            found.append(model(torch.tensor(several), cache).flatten(0, 1))
    return torch.cat(found)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_blocks_are_those_of_torch(library: ctypes.CDLL, name: str, quantized: bool) -> None:
    plain, native = (tiny_model(CONFIGS[name]) for _ in range(2))
    if quantized:
        plain, native = eight_bits(plain), eight_bits(native)
    accelerate(native, library)
    assert native.native is not None
    ids = torch.randint(0, 320, (2, 600), generator=torch.Generator().manual_seed(1)).tolist()
    # Rows of different lengths; then one, five and twenty tokens at once; past the keys that are read in one go.
    chunks = [
        [row[:n], row[n : n + 1], row[n + 1 : n + 6], row[n + 6 : n + 26]] for row, n in zip(ids, (530, 3), strict=True)
    ]
    expected, found = run(plain, chunks), run(native, chunks)
    close = 1e-3 if quantized else 1e-5  # codes meet sixteen bits where rows are many, and errors grow
    torch.testing.assert_close(found, expected, rtol=0, atol=close * max(10.0, float(expected.abs().max())))


@pytest.mark.parametrize(
    "config",
    [
        tiny_config(),  # heads of 8
        wide_config(norm=Norm(kind="layer", bias=True)),
        wide_config(norm=Norm(unit_offset=True)),
        wide_config(residual="sandwich"),
        wide_config(residual="parallel"),
        wide_config(residual_scale=0.5),
        wide_config(gated=False),
        wide_config(attention_softcap=20.0),
        wide_config(clip_qkv=1.0),
        wide_config(activation="relu2"),
        wide_config(layers=(replace(LAYER, window=4),) * 2),
        wide_config(layers=(LAYER, replace(LAYER, rope=Rope(dim=16, theta=99.0)))),
        wide_config(layers=(replace(LAYER, experts=Experts(count=2, active=1, renormalise=True)),) * 2),
        wide_config(qk_norm=Norm(), qk_norm_over="all_heads"),
        wide_config(qk_norm=Norm(eps=1e-3)),
    ],
)
def test_other_blocks_keep_their_own_ways(library: ctypes.CDLL, config: Config) -> None:
    plain, native = tiny_model(config), tiny_model(config)
    accelerate(native, library)
    assert native.native is None
    ids = torch.randint(0, 320, (1, 12), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        torch.testing.assert_close(native(ids), plain(ids), rtol=0, atol=1e-4)


def test_a_tap_is_never_passed_by(library: ctypes.CDLL) -> None:
    class Silent(Fused):
        def write(self, layer: int, part: str, x: torch.Tensor) -> torch.Tensor:
            return x * 0 if part == "mlp" else x

    plain, native = tiny_model(wide_config()), tiny_model(wide_config())
    accelerate(native, library)
    ids = torch.arange(9)[None]
    with torch.inference_mode():
        caches = [KVCache(model.config) for model in (plain, native)]
        expected, found = plain(ids, caches[0], Silent()), native(ids, caches[1], Silent())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_gradients_flow_as_before(library: ctypes.CDLL) -> None:
    model = tiny_model(wide_config())
    accelerate(model, library)
    x = torch.randn(1, 4, 32, requires_grad=True)
    model.logits(x).sum().backward()
    assert x.grad is not None and bool(x.grad.abs().sum() > 0)


@pytest.mark.parametrize("length", [8 * SPAN - 1, 9 * SPAN + 40])
def test_a_long_row_of_keys_is_read_in_longer_parts(library: ctypes.CDLL, length: int) -> None:
    plain, native = (tiny_model(wide_config(context=4096)) for _ in range(2))
    accelerate(native, library)
    ids = torch.randint(0, 320, (length,), generator=torch.Generator().manual_seed(2)).tolist()
    logits = []
    for model in (plain, native):
        cache = new_cache(model, capacity=length + 1)
        prefill(model, cache, ids)
        logits.append(step(model, cache, [7]))
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=1e-4)


def test_greedy_text_is_the_same(library: ctypes.CDLL) -> None:
    plain, native = tiny_model(wide_config()), tiny_model(wide_config())
    accelerate(native, library)
    texts = []
    for model in (plain, native):
        request = Request(list(range(40)), Sampling(temperature=0), 60)
        texts.append([token.id for token in generate(model, new_cache(model), request)])
    assert texts[0] == texts[1]


def test_a_number_that_is_none_is_not_hidden(library: ctypes.CDLL) -> None:
    model = tiny_model(wide_config())
    accelerate(model, library)
    model.blocks[0].attention.qkv.weight.data[40] = float("nan")  # a number of every key
    cache = new_cache(model)
    assert not bool(torch.isfinite(prefill(model, cache, [1, 2, 3])).all())
    assert not bool(torch.isfinite(step(model, cache, [4])).all())
