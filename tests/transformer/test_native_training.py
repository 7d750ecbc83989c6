"""What the compiled library does in training is what the parts do that it stands in for, there and back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tiny import tiny_config, tiny_model
from transformer.accelerate import accelerate_training
from transformer.cache import KVCache
from transformer.config import Config, Layer, Norm, Rope
from transformer.data import IGNORED
from transformer.dropout import Dropout
from transformer.lessons import noted
from transformer.loss import Told, cross_entropy
from transformer.mask import Mask
from transformer.model import Transformer
from transformer.native import sgemm
from transformer.native_training import NativeAttention, NativeGate, NativeLoss, NativeNorm
from transformer.position import Rotation
from transformer.tap import FUSED, Fused, Rule, Tap
from transformer.train import Loss

PARTS = (NativeAttention, NativeGate, NativeNorm)
LAYER = Layer(mlp_width=48, attention_scale=0.25, rope=Rope(dim=16))


def config(**changes: Any) -> Config:
    """Heads wide enough for the library."""
    shape: dict[str, Any] = {"heads": 6, "kv_heads": 2, "head_dim": 16, "context": 256, "layers": (LAYER,) * 2}
    return tiny_config(**{**shape, **changes})


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[type]:
    """The compiled parts that were called."""
    found: set[type] = set()

    def noted(part: type, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda self, *arguments: (found.add(part), call(self, *arguments))[1]

    for part in PARTS:
        monkeypatch.setattr(part, "__call__", noted(part, part.__call__))
    return found


def learn(model: Transformer, ids: Tensor, tap: Tap = FUSED) -> tuple[float, dict[str, Tensor]]:
    """A loss, and its gradient."""
    model.requires_grad_(True)
    loss = cross_entropy(model(ids[:, :-1], tap=tap).flatten(0, 1), ids[:, 1:].flatten()) / ids[:, 1:].numel()
    loss.backward()
    return loss.item(), {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


def learn_in_bf16(model: Transformer, ids: Tensor, loss_of: Loss) -> tuple[float, dict[str, Tensor]]:
    """The same with products in bf16."""
    model.requires_grad_(True)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids[:, :-1]).flatten(0, 1)
    assert logits.dtype is torch.bfloat16
    loss = loss_of(logits, ids[:, 1:].flatten()) / ids[:, 1:].numel()
    loss.backward()
    return loss.item(), {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


def some_ids(length: int, rows: int = 3) -> Tensor:
    return torch.randint(0, 320, (rows, length + 1), generator=torch.Generator().manual_seed(length))


def compare(config: Config, library: ctypes.CDLL, length: int, tap: Tap = FUSED) -> None:
    """With the library and without it, both are equally far from what fp64 gives."""
    exact, plain, native = tiny_model(config).double(), tiny_model(config), tiny_model(config)
    accelerate_training(native, library)
    (loss, expected), theirs, ours = (learn(model, some_ids(length), tap) for model in (exact, plain, native))
    assert ours[0] == pytest.approx(loss, rel=1e-5)
    assert ours[1].keys() == theirs[1].keys() == expected.keys()
    for name, slope in expected.items():
        scale = slope.abs().max().item() + 1e-8
        far, near = ((side[1][name] - slope).abs().max().item() / scale for side in (ours, theirs))
        assert far < max(2e-5, 4 * near), (name, far, near)


CONFIGS = {
    "llama": config(),
    "qwen3": config(qk_norm=Norm()),
    "an eps of its own": config(qk_norm=Norm(eps=1e-2)),
    "heads of 8": tiny_config(),
    "a key head each": config(kv_heads=6, qk_norm=Norm()),
    "one key head for all": config(kv_heads=1),
    "heads of 48": config(head_dim=48, layers=(replace(LAYER, rope=Rope(dim=48), attention_scale=48**-0.5),) * 2),
    "biases everywhere": config(qkv_bias=True, out_bias=True, mlp_bias=True, head_bias=True),
    "half rotated": config(layers=(replace(LAYER, rope=Rope(dim=8)),) * 2),
    "no positions": config(layers=(replace(LAYER, rope=None),) * 2),
    "two kinds of positions": config(layers=(LAYER, replace(LAYER, rope=Rope(dim=16, theta=99.0)))),
    "a width that fills no register": config(width=27, layers=(replace(LAYER, mlp_width=29),) * 2),
    "norms after the sum": config(residual="post"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_are_those_of_torch(library: ctypes.CDLL, used: set[type], name: str) -> None:
    compare(CONFIGS[name], library, 90)
    assert used == set(PARTS)


@pytest.mark.parametrize("name", CONFIGS)
def test_products_in_bf16_leave_no_more_error_than_with_torch(library: ctypes.CDLL, used: set[type], name: str) -> None:
    exact, plain, native = tiny_model(CONFIGS[name]).double(), tiny_model(CONFIGS[name]), tiny_model(CONFIGS[name])
    accelerate_training(native, library)
    loss, expected = learn(exact, some_ids(90))
    theirs = learn_in_bf16(plain, some_ids(90), cross_entropy)
    ours = learn_in_bf16(native, some_ids(90), NativeLoss(library))
    assert used == set(PARTS)
    assert ours[0] == pytest.approx(loss, rel=1e-3)
    assert ours[1].keys() == expected.keys()
    far, near = (
        sum((side[1][name] - slope).norm().item() / (slope.norm().item() + 1e-8) for name, slope in expected.items())
        for side in (ours, theirs)
    )
    assert far < 1.1 * near


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("words", [1, 15, 16, 17, 4096])
@pytest.mark.parametrize(("voice", "kept"), [(None, False), (0.75, False), (0.75, True)])
def test_the_loss_is_that_of_torch(
    library: ctypes.CDLL, voice: float | None, kept: bool, dtype: torch.dtype, words: int
) -> None:
    random = torch.Generator().manual_seed(words)
    logits = (8 * torch.randn(37, words, generator=random)).to(dtype)
    targets = torch.randint(0, words, (37,), generator=random)
    teacher = (8 * torch.randn(37, words, generator=random)).to(dtype)
    lesson = noted([(teacher, 1)])
    targets[::5] = IGNORED
    slopes, losses = [], []
    for loss_of, wide in ((cross_entropy, torch.float64), (NativeLoss(library), dtype)):
        leaf = logits.to(wide).requires_grad_()
        word = lesson if kept else teacher.to(wide)
        loss = loss_of(leaf, targets, None if voice is None else Told(word, voice))
        (0.3 * loss).backward()
        assert leaf.grad is not None
        slopes.append(leaf.grad.double())
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5, abs=1e-4)
    assert slopes[0].any() or words == 1
    assert (slopes[1][::5] == 0).all()
    assert torch.allclose(slopes[1], slopes[0], rtol=0, atol=1e-6 if dtype is torch.float32 else 1e-3)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_logit_that_is_no_number_makes_the_loss_none(library: ctypes.CDLL, number: float) -> None:
    logits = torch.zeros(3, 40)
    logits[1, 7] = number
    assert not torch.isfinite(NativeLoss(library)(logits, torch.tensor([1, 2, 3])))


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 200])
def test_sequences_of_any_length(library: ctypes.CDLL, used: set[type], length: int) -> None:
    compare(config(qk_norm=Norm()), library, length)
    assert used == set(PARTS)


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        (config(norm=Norm(kind="layer", bias=True)), {NativeAttention, NativeGate}),
        (config(norm=Norm(unit_offset=True)), {NativeAttention, NativeGate}),
        (config(norm=Norm(gain=False)), {NativeAttention, NativeGate}),
        (config(activation="gelu"), {NativeAttention, NativeNorm}),
        (config(gated=False, activation="relu2"), {NativeAttention, NativeNorm}),
        (config(attention_softcap=20.0), {NativeGate, NativeNorm}),
        (config(clip_qkv=1.0), {NativeGate, NativeNorm}),
        (config(layers=(replace(LAYER, window=4),) * 2), {NativeGate, NativeNorm}),
        (config(qk_norm=Norm(), qk_norm_over="all_heads"), {NativeGate, NativeNorm}),
    ],
)
def test_other_parts_keep_their_own_ways(
    library: ctypes.CDLL, used: set[type], other: Config, parts: set[type]
) -> None:
    compare(other, library, 20)
    assert used == parts


def test_who_watches_attention_sees_torch_attend(library: ctypes.CDLL, used: set[type]) -> None:
    class Halved(Fused):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, rule: Rule) -> Tensor:
            return super().attend(q, k, v, mask, rule) / 2

    compare(config(), library, 20, Halved())
    assert used == {NativeGate, NativeNorm}


def test_what_changes_only_the_stream_keeps_the_compiled_attention(library: ctypes.CDLL, used: set[type]) -> None:
    class EveryThird(Dropout):
        def write(self, layer: int, part: str, x: Tensor) -> Tensor:
            return x * (torch.arange(x.shape[-1]) % 3 > 0) * 1.5  # drops, but the same for every dtype

    compare(config(), library, 20, EveryThird(1 / 3))
    assert used == set(PARTS)


def test_other_numbers_and_a_cache_are_left_to_torch(library: ctypes.CDLL, used: set[type]) -> None:
    model = tiny_model(config())
    accelerate_training(model, library)
    ids = some_ids(8)
    model(ids, KVCache(model.config, 3))
    assert used == {NativeGate, NativeNorm}
    used.clear()
    model.double()(ids)
    assert not used
    model.bfloat16()(ids)
    assert used == {NativeGate}  # the others' gains are in bf16, too


def test_without_a_blas_everything_is_left_to_torch(library: ctypes.CDLL, used: set[type]) -> None:
    blas, model = sgemm(library).value, tiny_model(config())
    try:
        sgemm(library).value = None
        accelerate_training(model, library)
    finally:
        sgemm(library).value = blas
    model(some_ids(8))
    assert not used


def test_the_number_of_threads_changes_no_bit(library: ctypes.CDLL) -> None:
    random = torch.Generator().manual_seed(3)
    norms = [torch.nn.RMSNorm(16), torch.nn.RMSNorm(16)]
    rotation = Rotation(*torch.randn(2, 1, 70, 1, 8, generator=random))
    qkv, both, gain = (torch.randn(shape, generator=random) for shape in ((3, 70, 160), (3, 70, 58), (29,)))
    attend = NativeAttention(library, (6, 2, 16), norms, 1e-6, 0.25)

    def slopes(threads: int) -> list[Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in (qkv, both, gain)]
        torch.set_num_threads(threads)
        try:
            gated = NativeNorm(library, 1e-6)(NativeGate(library)(leaves[1]), leaves[2])
            (attend(leaves[0], rotation).square().sum() + gated.square().sum()).backward()
        finally:
            torch.set_num_threads(1)
        leaves += [norm.weight for norm in norms]
        found = [leaf.grad for leaf in leaves if leaf.grad is not None]
        for norm in norms:
            norm.zero_grad()
        return found

    alone = slopes(1)
    assert len(alone) == 5
    for threads in (2, 3):
        assert all(torch.equal(a, b) for a, b in zip(alone, slopes(threads), strict=True))


def test_a_number_that_is_none_is_not_hidden(library: ctypes.CDLL) -> None:
    model = tiny_model(config())
    accelerate_training(model, library)
    model.blocks[0].attention.qkv.weight.data[6 * 16] = float("nan")  # a number of every key
    assert not torch.isfinite(model(some_ids(8))).any()
