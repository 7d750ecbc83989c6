"""A decoder that grows says what it said, and all of what is new learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from tests.shapes import SHAPES
from tests.tiny import tiny_config, tiny_model
from transformer.config import Norm
from transformer.errors import InputError
from transformer.grow import grow
from transformer.shape import Growth, larger

IDS = torch.arange(60).view(2, 30) * 7 % 320
GROWS = ("rotary", "no positions", "multi-query, squared relu", "head norms", "scaled", "two windows")
CONFIGS = {name: SHAPES[name] for name in GROWS} | {
    "biases": tiny_config(qkv_bias=True, out_bias=True, mlp_bias=True),
    "tied": tiny_config(tied=True),
    "learned": replace(SHAPES["learned"], norm=Norm()),
}


@pytest.mark.parametrize("growth", [Growth(width=40), Growth(heads=8), Growth(width=48, heads=12, layers=5)], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_it_says_what_it_said(name: str, growth: Growth) -> None:
    if name == "two windows":  # whose layers differ
        growth = replace(growth, layers=None)
    config = CONFIGS[name]
    model = tiny_model(config).double()
    wanted = larger(config, growth)
    grown = grow(model, wanted, seed=1).double()
    assert grown.config == wanted != config
    assert sum(p.numel() for p in grown.parameters()) > sum(p.numel() for p in model.parameters())
    # Zeros in the stream make its mean square smaller, so the norms' eps weighs a little more.
    bound = 1e-12 if growth.width is None else 1e-4
    torch.testing.assert_close(grown(IDS), model(IDS), rtol=bound, atol=bound * float(model(IDS).abs().max()))


def test_all_that_is_new_learns() -> None:
    config = tiny_config(tied=True, qk_norm=Norm())
    grown = grow(tiny_model(config), larger(config, Growth(width=48, heads=8, layers=3)), seed=1)
    before = {name: parameter.clone() for name, parameter in grown.named_parameters()}
    optimizer = torch.optim.Adam(grown.parameters(), lr=1e-3)
    for _ in range(4):  # what is written must be there before readers can learn from it
        optimizer.zero_grad()
        F.cross_entropy(grown(IDS)[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()).backward()
        optimizer.step()
    for name, parameter in grown.named_parameters():
        still = (parameter == before[name]).float().mean()
        assert still < (0.9 if name == "embed.weight" else 0.05), name  # not all tokens are in the text


def test_growing_is_a_function_of_the_seed() -> None:
    model = tiny_model()
    config = larger(model.config, Growth(width=48))
    one, same, other = (grow(model, config, seed).blocks[0].attention.qkv.weight for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_a_wider_model_has_wider_mlps_and_as_many_queries_a_key() -> None:
    grown = larger(tiny_config(), Growth(width=48, heads=8))
    assert (grown.kv_heads, grown.layers[0].mlp_width) == (4, 72)
    assert larger(tiny_config(), Growth(context=300)) == tiny_config(context=300)
    assert larger(tiny_config(), Growth()) == larger(tiny_config(), Growth(context=9)) == tiny_config()
    assert larger(tiny_config(), Growth()) == larger(tiny_config(), Growth(width=32, layers=2)) == tiny_config()


@pytest.mark.parametrize(
    ("name", "growth", "message"),
    [
        ("rotary", Growth(width=16), "only grow: --width 16 is less than its 32"),
        ("rotary", Growth(layers=1), "only grow: --layers 1 is less than its 2"),
        ("rotary", Growth(heads=5), "5 heads cannot share keys and values as its 4 do"),
        ("learned", Growth(context=300), "it has learnt 256 positions and cannot see 300 tokens"),
        ("two windows", Growth(layers=4), "its 3 layers differ"),
        *(
            (name, Growth(width=40), "only a decoder with RMS norms in front of attention and of one MLP can grow")
            for name in (
                "learned",
                "alibi",
                "experts",
                "parallel",
                "narrow embedding",
                "2017",
                "both norms, caps, windows",
            )
        ),
    ],
)
def test_what_cannot_grow(name: str, growth: Growth, message: str) -> None:
    shapes = SHAPES | {"two norms": tiny_config(residual="sandwich")}
    with pytest.raises(InputError, match=message):
        larger(shapes[name], growth)
