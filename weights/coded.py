"""Matrices that a file has as codes with scales: taken as they are, without loss and without their fourfold size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from transformer.config import Config
from weights.memory import EightBits, Room
from weights.names import Step
from weights.tensorfile import Grouping, Stored

if TYPE_CHECKING:
    from transformer.int8 import Codes
    from transformer.model import Transformer
    from transformer.pieces import Piece


def multiplied_as(name: str, known: Mapping[str, Piece], config: Config) -> str:
    """The matrix that a piece is part of; of an embedding that is the head as well, the head."""
    return "head.weight" if config.tied and name == "embed.weight" else known[name].parameter


def homes_of_codes(
    model: Transformer, plan: list[Step], known: Mapping[str, Piece], stored: Mapping[str, Stored], room: Room
) -> dict[str, EightBits]:
    """For each matrix all of whose pieces are stored as codes, with groups that suit every one of them."""
    from transformer.int8 import matrices

    if any(layer.experts for layer in model.config.layers):
        return {}
    groupings: dict[str, set[Grouping | None]] = {}
    for step in plan:
        grouping = stored[step.theirs[0]].grouping if len(step.theirs) == 1 else None
        for name in step.ours:
            groupings.setdefault(multiplied_as(name, known, model.config), set()).add(grouping)
    homes = {}
    for name, shape in matrices(model).items():
        found = [grouping for grouping in groupings[name] if grouping is not None]
        if len(found) == len(groupings[name]):
            group = min(grouping.group for grouping in found)
            homes[name] = EightBits(room, shape, shape[1] // group, any(grouping.offset for grouping in found))
    return homes


def codes_of(step: Step, config: Config, stored: Mapping[str, Stored]) -> Iterator[tuple[str, Codes]]:
    """The codes of a step's pieces. A rule moves rows: those of codes, of scales and of offsets alike."""
    from transformer.int8 import Codes

    (theirs,) = step.theirs
    moved = [None if part is None else step.rule.load(config, [part]) for part in stored[theirs].codes()]
    for number, name in enumerate(step.ours):
        codes, scales, offsets = (None if part is None else part[number] for part in moved)
        assert codes is not None and scales is not None
        yield name, Codes(codes, scales, offsets)
