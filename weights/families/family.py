"""What a family file provides, and the shorthands it is written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformer.config import Activation, Config
from weights.families.foreign import Foreign

if TYPE_CHECKING:
    from torch import Tensor

    Convert = Callable[[Config, Sequence[Tensor]], Sequence[Tensor]]

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}

FOREIGN_ACTIVATIONS: dict[Activation, str] = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "relu2": "relu2",
}


def unchanged(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    return tensors


@dataclass(frozen=True)
class Tensors:
    """Foreign tensors and our pieces that hold the same numbers.

    Names leave out `.weight` and `.bias`: both follow where the piece has them. {i} counts layers, {e} experts.
    `load` turns theirs into ours, `save` the other way; it also runs on tensors that have only a shape, to tell
    which shapes a file must have.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    load: Convert = unchanged
    save: Convert = unchanged


@dataclass(frozen=True)
class Family:
    model_type: str
    architecture: str  # the class name that transformers puts into "architectures"
    read: Callable[[Foreign], Config]
    tensors: tuple[Tensors, ...]
    prefix: str = "model."  # of the base model; real files have it or not
    ignored: tuple[str, ...] = ()  # patterns of tensors that hold nothing a decoder needs
    write: Callable[[Config], dict[str, Any]] | None = None  # what config.json would say, right or wrong
    headless: tuple[str, ...] = ("lm_head",)  # names that never carry the prefix


def same(theirs: str, ours: str) -> Tensors:
    return Tensors((theirs,), (ours,))


def stacked(theirs: str, *ours: str) -> Tensors:
    """One foreign matrix whose rows are ours, one after the other."""

    def load(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        widths = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
        sizes = [widths[name[-1]] * config.head_dim if name[-1] in widths else -1 for name in ours]
        (rows,) = tensors
        return rows.split(sizes) if -1 not in sizes else rows.chunk(len(ours))

    def save(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        import torch

        return [torch.cat(list(tensors))]

    return Tensors((theirs,), ours, load, save)
