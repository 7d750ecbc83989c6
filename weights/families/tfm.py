"""tfm: our own Config and our own names, for decoders that no other family describes."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from transformer.config import Config
from transformer.errors import InputError
from weights.families.family import Family, same
from weights.families.foreign import Foreign

NAMES = (
    "embed",
    "embed_in",
    "position",
    "embed_norm",
    "blocks.{i}.attention_norm",
    "blocks.{i}.attention.q",
    "blocks.{i}.attention.k",
    "blocks.{i}.attention.v",
    "blocks.{i}.attention.q_norm",
    "blocks.{i}.attention.k_norm",
    "blocks.{i}.attention.out",
    "blocks.{i}.attention_output",
    "blocks.{i}.mlp_norm",
    "blocks.{i}.mlp.gate",
    "blocks.{i}.mlp.up",
    "blocks.{i}.mlp.down",
    "blocks.{i}.mlp.router",
    "blocks.{i}.mlp.experts.{e}.gate",
    "blocks.{i}.mlp.experts.{e}.up",
    "blocks.{i}.mlp.experts.{e}.down",
    "blocks.{i}.mlp_output",
    "final_norm",
    "head_in",
    "head",
)


def read(c: Foreign) -> Config:
    table = c.table("decoder")
    config: Config = _build(Config, table.values, table.source)
    return config


def write(config: Config) -> dict[str, Any]:
    return {"decoder": _plain(config)}


def _plain(value: Any) -> Any:
    """Dataclasses as objects that leave out what equals the default."""
    if is_dataclass(value):
        parts = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: _plain(part) for f, part in parts if f.default is MISSING or part != f.default}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _build(kind: Any, value: Any, where: str) -> Any:
    """`_plain` undone: a value of that type, checked all the way down."""
    if isinstance(kind, UnionType):  # a part that may be absent
        return None if value is None else _build(get_args(kind)[0], value, where)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_build(get_args(kind)[0], part, f"{where}[{i}]") for i, part in enumerate(value))
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        hints = get_type_hints(kind)
        if unknown := set(value) - set(hints):
            raise InputError(f"{where}: {min(unknown)!r:.60} is not one of its {len(hints)} settings")
        if missing := {f.name for f in fields(kind) if f.default is MISSING} - set(value):
            raise InputError(f"{where}: {min(missing)} is missing")
        return kind(**{name: _build(hints[name], part, f"{where}: {name}") for name, part in value.items()})
    if get_origin(kind) is Literal and value in get_args(kind):
        return value
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind in (int, bool) and type(value) is kind:
        return value
    raise InputError(f"{where}: {value!r:.60} is not a {getattr(kind, '__name__', kind)}")


FAMILY = Family(
    "tfm", "Transformer", read, tuple(same(name, name) for name in NAMES), "", write=write, headless=("head.",)
)
