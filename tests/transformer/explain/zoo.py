"""Decoders of every kind that explain must come out right for."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests.tiny import tiny_config, tiny_model
from transformer.config import Alibi, Config, Experts, Norm
from transformer.model import Transformer

PLAIN = tiny_config()
LAYER = PLAIN.layers[0]
NOWHERE = replace(LAYER, rope=None)
CENTRED = Norm(kind="layer", eps=1e-5, bias=True)
WINDOWED = (replace(LAYER, window=5), LAYER, replace(LAYER, window=3))

ZOO: dict[str, Config] = {
    "pre": PLAIN,
    "post": tiny_config(
        residual="post",
        norm=CENTRED,
        final_norm=False,
        position_embedding="sinusoidal",
        layers=(NOWHERE,) * 2,
        gated=False,
        activation="relu",
        kv_heads=4,
        out_bias=True,
        qkv_bias=True,
        mlp_bias=True,
    ),
    "sandwich": tiny_config(
        residual="sandwich",
        norm=Norm(unit_offset=True),
        attention_softcap=3.0,
        logit_softcap=5.0,
        embed_scale=32**0.5,
        layers=WINDOWED,
        tied=True,
    ),
    "output": tiny_config(residual="output", qk_norm=Norm(), qk_norm_over="all_heads"),
    "parallel": tiny_config(residual="parallel", norm=CENTRED, out_bias=True, head_bias=True, gated=False),
    "parallel_shared": tiny_config(residual="parallel_shared", norm=replace(CENTRED, bias=False), logit_scale=0.25),
    "alibi": tiny_config(
        alibi=Alibi(), norm=CENTRED, embed_norm=True, layers=(NOWHERE,) * 2, out_bias=True, kv_heads=1
    ),
    "narrow": tiny_config(embed_width=16, position_embedding="learned", layers=(NOWHERE,) * 2),
    "scaled": tiny_config(residual_scale=0.4, embed_scale=3.0, logit_scale=0.5),
    "experts": tiny_config(layers=(replace(LAYER, experts=Experts(count=4, active=2, renormalise=True)),) * 2),
}
IDS = [5, 17, 200, 17, 42, 5, 17, 300, 9, 9, 200, 17, 42]


def zoo_model(name: str, dtype: torch.dtype = torch.float64) -> Transformer:
    return tiny_model(ZOO[name]).to(dtype)


def as_batch(ids: list[int] = IDS) -> torch.Tensor:
    return torch.tensor([ids])
