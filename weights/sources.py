"""The text a run is made of, as the command line names it: files, directories, weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from transformer.errors import InputError

MANY = 16  # files, above which those of one directory count as one source
SUFFIXES = (".txt", ".md", ".jsonl")


@dataclass(frozen=True)
class Source:
    """What is weighted and reported on as one: a file, a directory, or many unweighted files of one directory."""

    name: str
    paths: tuple[Path, ...]
    weight: float = 1.0

    def files(self) -> list[Path]:
        return [file for path in self.paths for file in _files(path)]

    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files())


def parse_sources(*lists: Iterable[str]) -> list[list[Source]]:
    """`text.txt`, or `text.txt:2` to read it twice an epoch. Says nothing about what is there: a run can go on
    when the text is gone, because it has it encoded."""
    parsed = [[_weighted(argument) for argument in arguments] for arguments in lists]
    paths = {path for sources in parsed for path, _ in sources}
    stems = Counter(path.stem for path in paths)
    answer = []
    for sources in parsed:
        groups: dict[tuple[str, float], list[Path]] = {}
        for path, weight in sources:
            if len(paths) > MANY and weight == 1:
                name = str(path.parent)
            else:
                name = path.stem if stems[path.stem] == 1 else str(path)
            group = groups.setdefault((name, weight), [])
            if path in group:
                raise InputError(f"{path}: given twice")
            group.append(path)
        answer.append([Source(name, tuple(group), weight) for (name, weight), group in groups.items()])
    return answer


def merged(*lists: Iterable[Source]) -> list[Source]:
    """Each file once, whatever the lists it stands in, with the largest of its weights."""
    paths: dict[str, dict[Path, None]] = {}
    weights: dict[str, float] = {}
    for source in (source for sources in lists for source in sources):
        paths.setdefault(source.name, {}).update(dict.fromkeys(source.paths))
        weights[source.name] = max(source.weight, weights.get(source.name, 0.0))
    return [Source(name, tuple(files), weights[name]) for name, files in paths.items()]


def _weighted(argument: str) -> tuple[Path, float]:
    found = re.fullmatch(r"(.+):(\d+(?:\.\d+)?)", argument)
    if not found:
        return Path(argument), 1.0
    if not 0 < float(found[2]) <= 1000:
        raise InputError(f"{argument}: a weight must lie between 0 and 1000, got {found[2]}")
    return Path(found[1]), float(found[2])


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: no such file")
    files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    if not files:
        raise InputError(f"{path}: no {', '.join(SUFFIXES)} file in this directory")
    return files
