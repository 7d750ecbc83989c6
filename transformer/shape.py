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


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How large a model to go on with is to become first; None: as it is."""

    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    context: int | None = None


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


def larger(config: Config, growth: Growth) -> Config:
    """What `grow` can make a decoder into. MLPs grow with the width, key/value heads with the heads."""
    if growth.context is not None and growth.context > config.context:
        if config.position_embedding == "learned":
            raise InputError(f"it has learnt {config.context} positions and cannot see {growth.context} tokens")
        config = replace(config, context=growth.context)
    sizes = {"layers": len(config.layers), "width": config.width, "heads": config.heads}
    wanted = {name: getattr(growth, name) or size for name, size in sizes.items()}
    if wanted == sizes:
        return config
    for name, size in sizes.items():
        if wanted[name] < size:
            raise InputError(f"a model can only grow: --{name} {wanted[name]} is less than its {size}")
    _check_can_grow(config)
    if wanted["layers"] > len(config.layers) and len(set(config.layers)) > 1:
        raise InputError(f"its {len(config.layers)} layers differ, so it is not clear what more of them would be")
    if wanted["heads"] * config.kv_heads % config.heads:
        raise InputError(f"{wanted['heads']} heads cannot share keys and values as its {config.heads} do")
    scale = wanted["width"] / config.width
    grown = [replace(layer, mlp_width=multiple_of_8(layer.mlp_width * scale)) for layer in config.layers]
    layers = config.layers if scale == 1 else tuple(grown)
    return replace(
        config,
        width=wanted["width"],
        heads=wanted["heads"],
        kv_heads=wanted["heads"] * config.kv_heads // config.heads,
        layers=layers + layers[-1:] * (wanted["layers"] - len(layers)),
    )


def _check_can_grow(config: Config) -> None:
    """Numbers that are zero may stand in the stream, and heads that nobody hears, only where no part would notice."""
    norm = config.norm
    streams = config.residual == "pre" and norm.kind == "rms" and norm.gain and not norm.unit_offset
    places = config.alibi is None and config.position_embedding != "sinusoidal"
    parts = config.embed_width is None and not any(layer.experts for layer in config.layers)
    if not (streams and places and parts and config.qk_norm_over == "head"):
        raise InputError("only a decoder with RMS norms in front of attention and of one MLP can grow")


def multiple_of_8(number: float) -> int:
    return round(number / 8) * 8
