"""The table of promises: every family in every configuration. `python -m tests.parity [FAMILY...]` prints it.

Each cell is the largest error, where there are two in fp32 and in fp64. The exit code is 1 if any promise is broken.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from tests import promises, reference
from tests.cases import CASES, Case
from tests.promises import Measured
from tests.shapes import SHAPES
from tests.tiny import tiny_model
from transformer.config import Config
from transformer.model import Transformer
from weights.checkpoint import load_model

COLUMNS = [*promises.PROMISES, *reference.PROMISES, "saved"]


def of_case(case: Case, length: int = 40) -> dict[str, Measured]:
    """Every promise, for a checkpoint that transformers wrote."""
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        theirs, ours = Path(scratch, "theirs"), Path(scratch, "ours")
        ours.mkdir()
        subject = reference.subject(case, theirs)
        return {
            **_alone(subject.model, length),
            **_alone(load_model(subject.checkpoint, torch.float64), length, " fp64"),
            **{name: promise(subject) for name, promise in reference.PROMISES.items()},
            "saved": reference.saved(subject, ours),
        }


def of_shape(config: Config, length: int = 40) -> dict[str, Measured]:
    """The promises that need no reference, for a decoder with random weights."""
    with torch.inference_mode():
        return _alone(tiny_model(config), length) | _alone(tiny_model(config).double(), length, " fp64")


def _alone(model: Transformer, length: int, suffix: str = "") -> dict[str, Measured]:
    ids = reference.random_ids(3, length)
    return {name + suffix: promise(model, ids) for name, promise in promises.PROMISES.items()}


def broken(results: dict[str, Measured]) -> dict[str, Measured]:
    return {name: measured for name, measured in results.items() if not measured.kept}


def main(families: list[str]) -> int:
    torch.set_num_threads(1)
    console = Console(width=200)
    table = Table("decoder", *COLUMNS)
    shapes = SHAPES if not families or "tfm" in families else {}
    rows: Iterator[tuple[str, dict[str, Measured]]] = chain(
        ((str(case), of_case(case)) for case in CASES if not families or case.family in families),
        ((f"tfm/{name}", of_shape(config)) for name, config in shapes.items()),
    )
    red = 0
    for name, results in rows:
        red += len(broken(results))
        table.add_row(name, *(" ".join(_cells(results, column)) for column in COLUMNS))
    console.print(table)
    console.print(f"{table.row_count} decoders, {red} promises broken")
    return 1 if red else 0


def _cells(results: dict[str, Measured], column: str) -> Iterator[str]:
    for name in (column, f"{column} fp64"):
        if name in results:
            error, bound = results[name]
            text = f"{error:.0e}" if error else "0"
            yield f"[green]{text}[/]" if results[name].kept else f"[red]{text} > {bound:.0e}[/]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
