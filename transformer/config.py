"""What a decoder is made of: the names of its parts and their sizes. Needs no torch.

A `Config` names parts, not families. Whatever differs from layer to layer stands in its `layers`.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from transformer.errors import InputError

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]
Residual = Literal["pre", "post", "sandwich", "output", "parallel", "parallel_shared"]
RopeScaling = Literal["default", "linear", "dynamic", "yarn", "llama3", "longrope"]


@dataclass(frozen=True, kw_only=True)
class Norm:
    kind: Literal["rms", "layer"] = "rms"
    eps: float = 1e-6
    gain: bool = True
    bias: bool = False
    unit_offset: bool = False  # the stored gain is the distance from one


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary positions: the first `dim` numbers of each head are turned, pair (i, i + dim/2) at a time."""

    dim: int
    theta: float = 10_000.0
    scaling: RopeScaling = "default"
    factor: float = 1.0
    original_context: int = 0  # what the frequencies were trained for; the scalings start from it
    attention_factor: float = 1.0  # multiplies cos and sin (yarn, longrope)
    beta_fast: float = 32.0  # yarn: full turns within the context above which a frequency is left alone
    beta_slow: float = 1.0  # yarn: ... and below which it is fully interpolated
    truncate: bool = True  # yarn: round that range to whole dimensions
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    short_factor: tuple[float, ...] = ()  # longrope: within the original context
    long_factor: tuple[float, ...] = ()  # longrope: beyond it

    def __post_init__(self) -> None:
        _positive(self, "dim", "factor")
        _one_of(self, "scaling", RopeScaling)
        if self.dim % 2 or (self.scaling == "dynamic" and self.dim == 2):
            raise InputError(f"rotary dimension must be even, and more than 2 to be dynamic, got {self.dim}")
        if self.theta <= 1.0:
            raise InputError(f"theta must be more than 1, got {self.theta}")
        if self.low_freq_factor >= self.high_freq_factor:
            raise InputError(f"low_freq_factor {self.low_freq_factor} must be below {self.high_freq_factor}")
        if self.scaling not in ("default", "linear"):
            _positive(self, "original_context")
        if self.scaling == "longrope" and {len(self.short_factor), len(self.long_factor)} != {self.dim // 2}:
            raise InputError(
                f"longrope needs {self.dim // 2} short and long factors, "
                f"got {len(self.short_factor)} and {len(self.long_factor)}"
            )


@dataclass(frozen=True, kw_only=True)
class Alibi:
    """A penalty growing with distance, one slope a head, instead of positions."""

    scale: float = 1.0
    rounded: bool = False  # slopes and penalties pass through bfloat16


@dataclass(frozen=True, kw_only=True)
class Experts:
    count: int
    active: int
    renormalise: bool  # the weights of the active experts are made to sum to one

    def __post_init__(self) -> None:
        _positive(self, "count", "active")
        if self.active > self.count:
            raise InputError(f"{self.active} experts active of only {self.count}")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What may differ from one layer to the next."""

    mlp_width: int
    attention_scale: float
    rope: Rope | None = None
    window: int | None = None  # a query sees itself and the window - 1 tokens before it
    experts: Experts | None = None  # instead of one MLP

    def __post_init__(self) -> None:
        _positive(self, "mlp_width")
        if self.window is not None:
            _positive(self, "window")


@dataclass(frozen=True, kw_only=True)
class Config:
    vocab_size: int
    context: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[Layer, ...]

    # The residual stream: x + f(norm(x)) is "pre"; norm(x + f(x)) is "post", as in 2017;
    # x + norm(f(norm(x))) is "sandwich"; x + norm(f(x)) is "output";
    # x + attention(norm(x)) + mlp(norm(x)) is "parallel", "parallel_shared" when both read one norm.
    residual: Residual = "pre"
    residual_scale: float = 1.0
    norm: Norm = Norm()
    final_norm: bool = True

    # Positions: rotary ones stand in the layers.
    position_embedding: Literal["none", "learned", "sinusoidal"] = "none"
    alibi: Alibi | None = None

    # Attention
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Norm | None = None
    qk_norm_over: Literal["head", "each_head", "all_heads"] = "head"  # one gain, one a head, one across
    clip_qkv: float | None = None
    attention_softcap: float | None = None

    # MLP
    gated: bool = True
    activation: Activation = "silu"
    mlp_bias: bool = False

    # Embedding and head
    embed_width: int | None = None  # narrower than the stream: projected in and out
    embed_scale: float = 1.0
    embed_norm: bool = False
    tied: bool = False
    head_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None

    def __post_init__(self) -> None:
        _positive(self, "vocab_size", "context", "width", "heads", "kv_heads", "head_dim")
        _one_of(self, "residual", Residual)
        _one_of(self, "activation", Activation)
        _one_of(self, "position_embedding", Literal["none", "learned", "sinusoidal"])
        if not self.layers:
            raise InputError("a decoder needs at least one layer")
        if self.heads % self.kv_heads:
            raise InputError(f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly")
        for layer in self.layers:
            if layer.rope and layer.rope.dim > self.head_dim:
                raise InputError(f"{layer.rope.dim} rotary dimensions in heads of {self.head_dim}")
        if self.position_embedding == "sinusoidal" and self.width % 2:
            raise InputError(f"sinusoidal positions need an even width, got {self.width}")


def _positive(part: object, *names: str) -> None:
    for name in names:
        value = getattr(part, name)
        if not value > 0:
            raise InputError(f"{name} must be positive, got {value}")


def _one_of(part: object, name: str, choices: object) -> None:
    value = getattr(part, name)
    if value not in get_args(choices):
        raise InputError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
