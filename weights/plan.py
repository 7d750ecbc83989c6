"""run.toml: everything a run was asked to be, readable, and enough to do it again."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from transformer.errors import InputError
from transformer.schedule import Recipe
from transformer.shape import Growth, Shape


@dataclass(frozen=True, kw_only=True)
class Data:
    sources: tuple[str, ...] = ()
    anneal: tuple[str, ...] = ()  # take over when the learning rate begins to come down
    teachers: tuple[str, ...] = ()  # models whose predictions are learnt as well
    lessons: bool = False  # teachers are asked once a sample, and what they say is kept
    tokenizer: str | None = None  # the model to take it from, instead of training one


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long to train: one of them is given."""

    minutes: float | None = None
    tokens: int | None = None
    steps: int | None = None
    epochs: float | None = None

    @property
    def given(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Running:
    start_from: str | None = None  # the model to go on with; then its shape is the run's, but for the plan's growth
    save_every: int | None = None  # steps; otherwise whenever the validation text is read
    keep: int = 2  # checkpoints with all that resuming needs
    threads: int | None = None
    device: str = "auto"
    compile: bool = False
    shard: bool = False  # share the parameters out among the processes


@dataclass(frozen=True, kw_only=True)
class Plan:
    data: Data = field(default_factory=Data)
    length: Length = field(default_factory=Length)
    shape: Shape = field(default_factory=Shape)
    growth: Growth = field(default_factory=Growth)
    recipe: Recipe = field(default_factory=Recipe)
    running: Running = field(default_factory=Running)


def dump_plan(plan: Plan) -> str:
    lines = []
    for table, values in asdict(plan).items():
        lines += [f"[{table}]", *(f"{key} = {_toml(v)}" for key, v in values.items() if v is not None), ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)  # what TOML and JSON write alike: strings, numbers, true and false


def load_plan(path: Path, plan: Plan | None = None) -> Plan:
    """What the file says over the given plan; only keys and types that a plan has."""
    try:
        tables = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    return changed(plan or Plan(), tables, str(path))


def changed(part: Any, values: dict[str, Any], where: str) -> Any:
    """A dataclass with some of its fields replaced, the tables within it likewise."""
    known = {f.name: f for f in fields(part)}
    new = {}
    for key, value in values.items():
        if key not in known:
            raise InputError(f"{where}: {key} is unknown; there are {', '.join(known)}")
        old = getattr(part, key)
        if is_dataclass(old):
            if not isinstance(value, dict):
                raise InputError(f"{where}: {key} must be a table, got {value!r:.60}")
            new[key] = changed(old, value, f"{where}: {key}")
        else:
            new[key] = _checked(value, str(known[key].type), f"{where}: {key}")
    return replace(part, **new)


def _checked(value: Any, kind: str, where: str) -> Any:
    """`kind` is the field's annotation: its first word tells what the file may hold."""
    if kind.startswith("tuple"):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(f"{where} must be a list of strings, got {value!r:.60}")
        return tuple(value)
    wanted: dict[str, tuple[Any, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,)}
    kinds = wanted.get(kind.split()[0], (str,))
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise InputError(f"{where} must be {' or '.join(k.__name__ for k in kinds)}, got {value!r:.60}")
    return float(value) if kind.startswith("float") else value
