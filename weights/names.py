"""Which tensors of a file make which of our pieces, and whether all of them are there and no others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from transformer.config import Config
from transformer.errors import InputError
from weights.families.family import Family, Tensors
from weights.tensorfile import Stored

if TYPE_CHECKING:
    from torch import Tensor


class Step(NamedTuple):
    """One rule spelled out: these foreign tensors, without the base model's prefix, are those pieces."""

    theirs: list[str]
    ours: list[str]
    rule: Tensors


def steps(
    family: Family, config: Config, pieces: Collection[str], stored: Collection[str] | None = None
) -> Iterator[Step]:
    """Makes every piece once: by the first rule that can, of those whose tensors are stored if that is known."""
    spelled = list(_spelled(family, config, pieces))
    if stored is not None:
        spelled.sort(key=lambda step: not all(name in stored for name in step.theirs))
    made: set[str] = set()
    for step in spelled:
        if not made.intersection(step.ours):
            made.update(step.ours)
            yield step
    assert made == set(pieces), f"{family.model_type} cannot name {sorted(set(pieces) - made)}"


def _spelled(family: Family, config: Config, pieces: Collection[str]) -> Iterator[Step]:
    """Every rule for every layer, expert, weight and bias that this decoder has."""
    for rule in family.tensors:
        if not rule.when(config):
            continue
        template = " ".join((*rule.theirs, *rule.ours))
        for i in range(len(config.layers) if "{i}" in template else 1):
            experts = config.layers[i].experts
            all_of = {"head": config.heads, "kv_head": config.kv_heads, "expert": experts.count if experts else 0}
            for e in range(experts.count if experts and "{e}" in template else 1):
                theirs = [name for template in rule.theirs for name in _spell(template, i, e, all_of)]
                ours = [name for template in rule.ours for name in _spell(template, i, e, all_of)]
                for kind in (".weight",) if rule.bare else (".weight", ".bias"):
                    names = [name + kind for name in ours]
                    if names and all(name in pieces for name in names):
                        yield Step(theirs if rule.bare else [name + kind for name in theirs], names, rule)


def _spell(template: str, i: int, e: int, all_of: dict[str, int]) -> list[str]:
    """One name, or one for each head or expert where it stands for all of them."""
    for key, count in all_of.items():
        if f"{{{key}}}" in template:
            return [template.format(i=i, e=e, **{key: n}) for n in range(count)]
    return [template.format(i=i, e=e)]


def without_prefix(family: Family, names: Collection[str], source: Path) -> dict[str, str]:
    """Names as the family's rules spell them -> names as they stand in the file."""
    bare: dict[str, str] = {}
    for name in names:
        prefixes = (family.prefix, *family.other_prefixes)
        prefix = next((p for p in prefixes if name.startswith(p)), "")
        other = bare.setdefault(name.removeprefix(prefix), name)
        if other != name:
            raise InputError(f"{source}: {other} and {name} are one tensor stored under two names")
    return bare


def with_prefix(family: Family, name: str) -> str:
    return name if name.startswith(family.headless) else family.prefix + name


def tied_head(family: Family) -> str:
    """The head's own matrix, which a file may store although it is the embedding once more."""
    return next(f"{rule.theirs[0]}.weight" for rule in family.tensors if rule.ours == ("head",))


def check(
    family: Family,
    config: Config,
    plan: list[Step],
    pieces: Mapping[str, Tensor],
    found: Mapping[str, Stored],
    source: Path,
) -> None:
    """Every tensor the plan needs is found in its right shape, and no other that is not known to hold nothing."""
    needed, left = sum(len(step.theirs) for step in plan), dict(found)
    for step in plan:
        shapes = step.rule.save(config, [pieces[name] for name in step.ours])
        for name, tensor in zip(step.theirs, shapes, strict=True):
            if name not in left:
                raise InputError(f"{source}: tensor {name} is missing: {needed} are needed, {len(found)} are there")
            stored = left.pop(name)
            if stored.shape != tuple(tensor.shape):
                raise InputError(
                    f"{stored.file.path}: tensor {stored.name} is {list(stored.shape)}, "
                    f"the config needs {list(tensor.shape)}"
                )
    if config.tied:
        left.pop(tied_head(family), None)
    unknown = [name for name in left if not any(re.fullmatch(pattern, name) for pattern in family.ignored)]
    if unknown:
        first = left[unknown[0]]
        raise InputError(
            f"{first.file.path}: tensor {first.name} is unknown to {family.model_type}: "
            f"{len(unknown)} of {len(found)} are"
        )
