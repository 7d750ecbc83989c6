"""What a person asked of explain, and the small languages of its options: 0,3-5 · all · mean · 10:20 · it#2."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformer.errors import InputError

METHODS = ("raw", "norm", "rollout", "zeroing", "gradient")


@dataclass(frozen=True, kw_only=True)
class Question:
    """The options of explain that say what to look at; each as it was typed."""

    top: int | None = None
    verbose: bool = False
    words: bool = False
    layer: str | None = None
    head: str | None = None
    rows: str | None = None
    cols: str | None = None
    token: str | None = None
    by_hand: bool = False
    roles: bool = False
    weights: str | None = None
    lens: bool = False
    attribute: bool = False
    target: str | None = None
    foil: str | None = None
    ablate: str | None = None
    ablate_by: Literal["zero", "mean"] = "zero"
    diff: str | None = None
    vs: str | None = None
    at: int | None = None
    across: Path | None = None
    verify: bool = False
    seed: int = 0


def choose(text: str, count: int, what: str) -> list[int | Literal["mean"]]:
    """Layers or heads: `all`, `mean`, numbers, ranges with both ends, lists of these; -1 is the last."""
    chosen: list[int | Literal["mean"]] = []
    for part in text.replace(" ", "").split(","):
        if part == "all":
            chosen += range(count)
        elif part == "mean":
            chosen.append("mean")
        elif re.fullmatch(r"-?\d+", part):
            chosen.append(one_of(int(part), count, what))
        elif match := re.fullmatch(r"(\d+)-(\d+)", part):
            first, last = (one_of(int(number), count, what) for number in match.groups())
            chosen += range(first, last + 1)
        else:
            raise InputError(f"{what} {part!r}: expected a number, a range like 2-5, all or mean")
    if not chosen:
        raise InputError(f"{what} {text!r}: nothing is chosen")
    return list(dict.fromkeys(chosen))


def one_of(number: int, count: int, what: str) -> int:
    """A number below count; negative ones count from the end."""
    if not -count <= number < count:
        raise InputError(f"{what} {number}: there are {count}, 0 to {count - 1}")
    return number % count


def span(text: str | None, count: int, what: str) -> range:
    """`a:b` as Python means it, one number, or all."""
    if text is None or text == "all":
        return range(count)
    if re.fullmatch(r"-?\d+", text):
        at = one_of(int(text), count, what)
        return range(at, at + 1)
    match = re.fullmatch(r"(-?\d+)?:(-?\d+)?", text)
    if match is None:
        raise InputError(f"{what} {text!r}: expected a:b, a number or all")
    start, stop = (int(part) if part else None for part in match.groups())
    chosen = range(count)[start:stop]
    if not chosen:
        raise InputError(f"{what} {text}: no row of {count} is in it")
    return chosen


def find(text: str, labels: Sequence[str]) -> int:
    """Which token is meant, by index or by its text; `it#2` is the second."""
    if re.fullmatch(r"-?\d+", text):
        return one_of(int(text), len(labels), "--token")
    name, number = text, 1
    if (match := re.fullmatch(r"(.+)#(\d+)", text)) and text not in labels:
        name, number = match[1], int(match[2])
    places = [i for i, label in enumerate(labels) if label == name]
    if not places:
        raise InputError(f"--token {text}: not among the {len(labels)} tokens; they are {_some(labels)}")
    if not 1 <= number <= len(places):
        raise InputError(f"--token {text}: {name} stands there {len(places)} times")
    return places[number - 1]


def heads(text: str, layers: int, count: int) -> list[tuple[int, int]]:
    """`3.1,13.8`: layer and head, counted from 0."""
    chosen = []
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(r"(-?\d+)\.(-?\d+)", part)
        if match is None:
            raise InputError(f"--ablate {part!r}: expected layer.head like 3.1, or auto")
        chosen.append((one_of(int(match[1]), layers, "--ablate layer"), one_of(int(match[2]), count, "--ablate head")))
    return list(dict.fromkeys(chosen))


def methods(text: str) -> list[str]:
    chosen = list(dict.fromkeys(METHODS if text == "all" else text.replace(" ", "").split(",")))
    for method in chosen:
        if method not in METHODS:
            raise InputError(f"--weights {method!r}: expected {', '.join(METHODS)} or all")
    return chosen


def _some(labels: Sequence[str]) -> str:
    return " ".join(labels[:12]) + (" …" if len(labels) > 12 else "")
