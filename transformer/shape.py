"""The choices a person makes about a decoder, and the Config they come to. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from transformer.config import Activation, Alibi, Config, Layer, Norm, Residual, Rope
from transformer.errors import InputError

Position = Literal["rotary", "learned", "sinusoidal", "alibi", "none"]
MLP = Literal["swiglu", "geglu", "gelu", "relu", "relu2"]

ACTIVATIONS: dict[MLP, tuple[bool, Activation]] = {
    "swiglu": (True, "silu"),
    "geglu": (True, "gelu_tanh"),
    "gelu": (False, "gelu_tanh"),
    "relu": (False, "relu"),
    "relu2": (False, "relu2"),
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The default is a small Qwen3: rotary positions, RMS norms, also of queries and keys, a gated MLP."""

    layers: int = 6
    width: int = 256
    heads: int = 4
    kv_heads: int = 0  # 0: as many as heads
    context: int = 256
    vocab_size: int = 4096
    position: Position = "rotary"
    norm: Literal["rms", "layer"] = "rms"
    mlp: MLP = "swiglu"
    mlp_width: int = 0  # 0: 4 × width, for a gated MLP 8/3 × width, which is as many parameters
    qk_norm: bool = True
    residual: Residual = "pre"
    bias: bool = False
    tied: bool = True


SIZES: dict[str, dict[str, Any]] = {
    "nano": {"layers": 4, "width": 128, "heads": 4, "context": 256, "vocab_size": 2048},
    "tiny": {"layers": 6, "width": 192, "heads": 3, "context": 256, "vocab_size": 4096},
    "small": {"layers": 8, "width": 256, "heads": 4, "context": 512, "vocab_size": 4096},
    "base": {"layers": 8, "width": 384, "heads": 6, "context": 512, "vocab_size": 8192},
    "medium": {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocab_size": 32768},
    "large": {"layers": 24, "width": 1024, "heads": 16, "context": 2048, "vocab_size": 32768},
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "vaswani": {
        "position": "sinusoidal", "norm": "layer", "mlp": "relu", "qk_norm": False, "residual": "post", "bias": True
    },
    "gpt2": {"position": "learned", "norm": "layer", "mlp": "gelu", "qk_norm": False, "bias": True},
    "llama": {"qk_norm": False},
    "qwen3": {},
}  # fmt: skip
PRESETS = SIZES | ARCHITECTURES


def choose(presets: list[str], choices: dict[str, Any]) -> Shape:
    """The presets one after the other, then the single choices over them."""
    chosen: dict[str, Any] = {}
    for name in presets:
        if name not in PRESETS:
            raise InputError(f"preset {name!r} is unknown; there are {', '.join(PRESETS)}")
        chosen |= PRESETS[name]
    known = {field.name for field in fields(Shape)}
    assert choices.keys() <= known, choices.keys() - known
    return replace(Shape(), **(chosen | choices))


def decoder(shape: Shape) -> Config:
    """The Config of a shape."""
    for name, choices in (("position", get_args(Position)), ("norm", ("rms", "layer")), ("mlp", get_args(MLP))):
        if getattr(shape, name) not in choices:
            raise InputError(f"{name} must be one of {', '.join(choices)}, got {getattr(shape, name)!r}")
    if shape.heads < 1 or shape.width % shape.heads:
        raise InputError(f"width {shape.width} cannot be divided among {shape.heads} heads")
    gated, activation = ACTIVATIONS[shape.mlp]
    head_dim = shape.width // shape.heads
    rope = Rope(dim=head_dim) if shape.position == "rotary" else None
    layer = Layer(
        mlp_width=shape.mlp_width or (multiple_of_8(shape.width * 8 / 3) if gated else 4 * shape.width),
        attention_scale=head_dim**-0.5,
        rope=rope,
    )
    norm = Norm(eps=1e-6) if shape.norm == "rms" else Norm(kind="layer", eps=1e-5, bias=True)
    return Config(
        vocab_size=shape.vocab_size,
        context=shape.context,
        width=shape.width,
        heads=shape.heads,
        kv_heads=shape.kv_heads or shape.heads,
        head_dim=head_dim,
        layers=(layer,) * shape.layers,
        residual=shape.residual,
        norm=norm,
        final_norm=shape.residual != "post",
        position_embedding=shape.position if shape.position in ("learned", "sinusoidal") else "none",
        alibi=Alibi() if shape.position == "alibi" else None,
        qkv_bias=shape.bias,
        out_bias=shape.bias,
        qk_norm=Norm(eps=norm.eps) if shape.qk_norm else None,
        gated=gated,
        activation=activation,
        mlp_bias=shape.bias,
        embed_scale=shape.width**0.5 if shape.residual == "post" else 1.0,
        tied=shape.tied,
    )


def multiple_of_8(number: float) -> int:
    return round(number / 8) * 8
