"""Decoders that training can make, beyond what the families have: each a change to the tiny one."""

from __future__ import annotations

from dataclasses import replace

from tests.tiny import tiny_config
from transformer.config import Alibi, Config, Experts, Layer, Norm, Rope

LAYER = tiny_config().layers[0]
LAYER_NORM = Norm(kind="layer", bias=True)
BIASES = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}


def layers(*changes: dict[str, object]) -> tuple[Layer, ...]:
    return tuple(replace(LAYER, **change) for change in changes)  # type: ignore[arg-type]


NO_ROPE = layers({"rope": None}, {"rope": None})
SHAPES: dict[str, Config] = {
    "rotary": tiny_config(),
    "2017": tiny_config(
        layers=NO_ROPE, kv_heads=4, residual="post", norm=LAYER_NORM, final_norm=False, position_embedding="sinusoidal",
        gated=False, activation="relu", tied=True, embed_scale=32**0.5, **BIASES,
    ),
    "sinusoidal pre-norm": tiny_config(layers=NO_ROPE, position_embedding="sinusoidal"),
    "learned": tiny_config(
        layers=NO_ROPE, position_embedding="learned", norm=LAYER_NORM, gated=False, activation="gelu", **BIASES
    ),
    "no positions": tiny_config(layers=NO_ROPE),
    "alibi": tiny_config(layers=NO_ROPE, alibi=Alibi(), embed_norm=True),
    "alibi, six heads, window": tiny_config(
        layers=layers({"rope": None, "window": 5}, {"rope": None}), alibi=Alibi(scale=0.5), heads=6, kv_heads=3
    ),
    "multi-query, squared relu": tiny_config(kv_heads=1, gated=False, activation="relu2"),
    "multi-head, gated gelu": tiny_config(kv_heads=4, activation="gelu_tanh"),
    "post-norm, rms": tiny_config(residual="post"),
    "parallel": tiny_config(residual="parallel", norm=LAYER_NORM),
    "parallel, one norm": tiny_config(residual="parallel_shared"),
    "norm of what is written": tiny_config(residual="output", qk_norm=Norm(), qk_norm_over="all_heads"),
    "both norms, caps, windows": tiny_config(
        residual="sandwich", attention_softcap=5.0, logit_softcap=4.0, norm=Norm(unit_offset=True),
        layers=layers({"window": 4}, {}, {"window": 4}),
    ),
    "two windows": tiny_config(layers=layers({"window": 3}, {"window": 9}, {"rope": None})),
    "a window of one": tiny_config(layers=layers({"window": 1}, {})),
    "experts": tiny_config(
        layers=layers({"experts": Experts(count=4, active=2, renormalise=True), "mlp_width": 20}, {})
    ),
    "head norms": tiny_config(qk_norm=Norm()),
    "a norm for each head": tiny_config(qk_norm=Norm(kind="layer"), qk_norm_over="each_head"),
    "norms without gain, clipped": tiny_config(norm=Norm(kind="layer", gain=False), clip_qkv=0.5),
    "narrow embedding": tiny_config(embed_width=12, tied=True),
    "scaled": tiny_config(residual_scale=0.5, embed_scale=3.0, logit_scale=0.3, head_bias=True),
    "part of each head turned": tiny_config(layers=layers({"rope": Rope(dim=4)}, {"rope": Rope(dim=2, theta=50.0)})),
}  # fmt: skip
