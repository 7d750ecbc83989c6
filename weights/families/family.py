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


QKV = ("blocks.{i}.attention.q", "blocks.{i}.attention.k", "blocks.{i}.attention.v")


def unchanged(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    return tensors


def always(config: Config) -> bool:
    return True


@dataclass(frozen=True)
class Tensors:
    """Foreign tensors and our pieces that hold the same numbers.

    Names leave out `.weight` and `.bias`: both follow where the piece has them. {i} counts layers, {e} experts;
    {head}, {kv_head} and {expert} stand for all of them within one rule.
    `load` turns theirs into ours, `save` the other way; it also runs on tensors that have only a shape, to tell
    which shapes a file must have.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    load: Convert = unchanged
    save: Convert = unchanged
    bare: bool = False  # their names carry no `.weight`
    when: Callable[[Config], bool] = always  # for names that depend on how a decoder is built


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
    other_prefixes: tuple[str, ...] = ()  # what some files have instead of `prefix`, longest first


def same(theirs: str, ours: str, when: Callable[[Config], bool] = always) -> Tensors:
    return Tensors((theirs,), (ours,), when=when)


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


def grouped(theirs: str) -> Tensors:
    """Queries, keys and values in one matrix: each key/value head stands behind the queries that share it."""

    def load(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        groups = tensors[0].unflatten(0, (config.kv_heads, -1, config.head_dim))  # (K, H/K + 2, D, ...)
        parts = groups.split((config.heads // config.kv_heads, 1, 1), dim=1)
        return [part.flatten(0, 2) for part in parts]

    def save(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        import torch

        groups = [t.unflatten(0, (config.kv_heads, -1, config.head_dim)) for t in tensors]
        return [torch.cat(groups, dim=1).flatten(0, 2)]

    return Tensors((theirs,), QKV, load, save)


def interleaved(theirs: str, ours: str) -> Tensors:
    """Pair i of a head stands in rows 2i and 2i + 1; with us in rows i and i + D/2."""

    def turned(rows: Tensor, *pairs: int) -> Tensor:
        flat = rows.flatten() if ours.endswith("norm") else rows  # gains of heads stand as (H, D)
        return flat.unflatten(0, (-1, *pairs)).transpose(1, 2).reshape(rows.shape)

    def load(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [turned(tensors[0], config.head_dim // 2, 2)]

    def save(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [turned(tensors[0], 2, config.head_dim // 2)]

    return Tensors((theirs,), (ours,), load, save)


def stacked_experts(gate_up: str, down: str) -> tuple[Tensors, Tensors]:
    """All experts of a layer in two tensors: gates above ups (E, 2F, C), and downs (E, C, F)."""

    def load(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [matrix for half in tensors[0].chunk(2, dim=1) for matrix in half]

    def save(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        import torch

        half = len(tensors) // 2
        return [torch.cat((torch.stack(list(tensors[:half])), torch.stack(list(tensors[half:]))), dim=1)]

    def load_down(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return list(tensors[0])

    def save_down(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        import torch

        return [torch.stack(list(tensors))]

    expert = "blocks.{i}.mlp.experts.{expert}."
    return (
        Tensors((gate_up,), (expert + "gate", expert + "up"), load, save, bare=True),
        Tensors((down,), (expert + "down",), load_down, save_down, bare=True),
    )
