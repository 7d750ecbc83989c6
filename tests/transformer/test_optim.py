from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from tests.tiny import tiny_config, tiny_model
from transformer.config import Config, Experts
from transformer.model import Transformer
from transformer.optim import Muon, build_optimizers, optimizer_state, orthogonalised, restore_optimizers, set_lr
from transformer.parallel import World
from transformer.pieces import Piece
from transformer.schedule import Recipe

ALONE = World()


def trainable(config: Config | None = None) -> Transformer:
    return tiny_model(config).requires_grad_(True).train()


def gradients(model: Transformer, seed: int = 0) -> None:
    random = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=random)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16), (3, 16, 40)])
def test_orthogonalised_pushes_singular_values_to_one_and_keeps_directions(
    shape: tuple[int, ...], dtype: torch.dtype, bound: float
) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, before, v = torch.linalg.svd(matrix, full_matrices=False)
    within = u.mT @ orthogonalised(matrix.to(dtype)).float() @ v.mT
    after = within.diagonal(dim1=-2, dim2=-1)
    strong = before > 0.1 * before.max()
    assert ((after > 0.6) & (after < 1.3))[strong].all()
    assert (within - torch.diag_embed(after)).abs().max() < bound


def test_muon_orthogonalises_the_parts_of_a_fused_matrix_apart() -> None:
    weight = torch.randn(12, 8, generator=torch.Generator().manual_seed(2))
    slope = torch.randn(12, 8, generator=torch.Generator().manual_seed(3))
    fused = nn.Parameter(weight.clone())
    parts = [nn.Parameter(weight[:8].clone()), nn.Parameter(weight[8:].clone())]
    fused.grad, parts[0].grad, parts[1].grad = slope, slope[:8].clone(), slope[8:].clone()
    Muon({fused: [Piece("a", "w", None, 0, 8), Piece("b", "w", None, 8, 12)]}, Recipe(lr=0.1), ALONE).step()
    for part in parts:
        Muon({part: [Piece("a", "w", None, 0, len(part))]}, Recipe(lr=0.1), ALONE).step()
    assert torch.allclose(fused, torch.cat([p.detach() for p in parts]), atol=1e-6)


def test_muon_goes_almost_the_same_way_in_bf16() -> None:
    ways = []
    for autocast in (False, True):
        matrix = nn.Parameter(torch.zeros(16, 40))
        matrix.grad = torch.randn(16, 40, generator=torch.Generator().manual_seed(4))
        Muon({matrix: [Piece("a", "w", None, 0, 16)]}, Recipe(lr=1.0, autocast=autocast), ALONE).step()
        ways.append(matrix.detach())
    assert not torch.equal(*ways)
    assert (ways[0] - ways[1]).norm() < 0.1 * ways[0].norm()


def test_muon_takes_what_is_a_matrix_inside_the_blocks() -> None:
    layers = tuple(
        layer.__class__(mlp_width=16, attention_scale=layer.attention_scale, rope=layer.rope,
                        experts=Experts(count=3, active=2, renormalise=True))
        for layer in tiny_config().layers
    )  # fmt: skip
    model = trainable(tiny_config(qkv_bias=True, layers=layers))
    names = {parameter: name for name, parameter in model.named_parameters()}
    muon, adam = build_optimizers(model, Recipe(), ALONE)
    inside = {names[p] for p in muon.param_groups[0]["params"]}
    outside = {names[p] for group in adam.param_groups for p in group["params"]}
    assert inside | outside == set(names.values()) and not inside & outside
    assert {name.removeprefix("blocks.0.") for name in inside if name.startswith("blocks.0.")} == {
        "attention.qkv.weight", "attention.out.weight", "mlp.router.weight", "mlp.gate_up", "mlp.down"
    }  # fmt: skip
    assert "embed.weight" in outside and "blocks.0.attention.qkv.bias" in outside


def test_adamw_alone_has_everything_and_decays_only_matrices() -> None:
    model = trainable()
    (adam,) = build_optimizers(model, Recipe(optimizer="adamw", weight_decay=0.1), ALONE)
    assert isinstance(adam, AdamW)
    assert sum(len(group["params"]) for group in adam.param_groups) == len(list(model.parameters()))
    decays = {group["weight_decay"]: group["params"] for group in adam.param_groups}
    assert all(p.ndim > 1 for p in decays[0.1]) and all(p.ndim == 1 for p in decays[0.0])


def test_beside_muon_the_embedding_is_decayed_and_gains_are_not() -> None:
    model = trainable()
    muon, adam = build_optimizers(model, Recipe(weight_decay=0.1), ALONE)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    muon.step()
    adam.step()
    rates = {
        "embed.weight": Recipe().embedding_lr,
        "blocks.0.attention.out.weight": Recipe().lr,
        "final_norm.weight": 0.0,
    }
    for name, parameter in model.named_parameters():
        if name in rates:
            torch.testing.assert_close(parameter.detach(), before[name] * (1 - 0.1 * rates.pop(name)))
    assert not rates


def test_set_lr_scales_from_the_full_rate_each_time() -> None:
    optimizers = build_optimizers(trainable(), Recipe(lr=0.02, embedding_lr=0.004), ALONE)
    set_lr(optimizers, 0.5)
    set_lr(optimizers, 0.25)
    assert [group["lr"] for o in optimizers for group in o.param_groups] == [0.005, 0.001, 0.001]


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_what_optimizers_remember_can_be_put_back(kind: str) -> None:
    models = [trainable(), trainable()]
    recipe = Recipe(optimizer=kind)  # type: ignore[arg-type]
    steppers = [build_optimizers(model, recipe, ALONE) for model in models]
    for model, optimizers, seeds in zip(models, steppers, ((1, 2), (1,)), strict=True):
        for seed in seeds:
            gradients(model, seed)
            for optimizer in optimizers:
                optimizer.step()
    memory = {name: tensor.clone() for name, tensor in optimizer_state(models[1], steppers[1])}
    fresh = trainable()
    fresh.load_state_dict(models[1].state_dict())
    optimizers = build_optimizers(fresh, recipe, ALONE)
    restore_optimizers(fresh, optimizers, memory)
    gradients(fresh, 2)
    for optimizer in optimizers:
        optimizer.step()
    for a, b in zip(models[0].parameters(), fresh.parameters(), strict=True):
        assert torch.equal(a, b)
    assert dict(optimizer_state(fresh, optimizers)).keys() == memory.keys()
