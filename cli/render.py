"""Plain rows -> rich tables and CSV. Knows rich, not torch; foreign text comes in made safe and is never markup."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

EIGHTHS = " ▏▎▍▌▋▊▉█"
SPARKS = "▁▂▃▄▅▆▇█"
MANY, ENDS = 60, 20  # a terminal gets no more rows than MANY: of a longer table, the first and last ENDS
NUMBERED = re.compile(r".+(#\d+)", re.DOTALL)
GAP = 2  # columns of a terminal between two of a table
COLD, HOT = (28, 32, 44), (250, 178, 60)  # background of a heat map's 0 and 1


@dataclass(frozen=True)
class Cell:
    text: str
    heat: float | None = None  # 0 to 1: the background, where there is colour
    style: str = ""


@dataclass(frozen=True)
class Column:
    heading: str
    right: bool = False
    label: bool = False  # repeated at the left when a wide table goes on below


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    above: Sequence[str] = ()  # lines between the title and the rows
    below: Sequence[str] = ()
    pages: bool = True  # a long one is cut in the middle on a terminal
    hint: str = "--rows all"
    sections: frozenset[int] = field(default_factory=frozenset)  # rows with a line under them


def show(console: Console, tables: Iterable[Table], paged: bool) -> None:
    for part in flow(tables, console.width, paged):
        with console.capture() as capture:
            console.print(part)
        for line in capture.get().splitlines():
            console.file.write(line.rstrip() + "\n")  # rich fills lines up with spaces


def flow(tables: Iterable[Table], width: int, paged: bool) -> Iterator[RenderableType]:
    """One table after the other, an empty line between them."""
    for number, table in enumerate(tables):
        if number:
            yield Text("")
        yield from _parts(table, width, paged)


def _parts(table: Table, width: int, paged: bool) -> Iterator[RenderableType]:
    """The title, the lines above, the rows in as many column blocks as the width needs, the lines below."""
    if table.title:
        yield Text(table.title, style="bold")
    yield from (Text(line) for line in table.above)
    cut = _cut(table) if paged and table.pages else table
    blocks = list(_blocks(cut, width))
    for number, columns in enumerate(blocks):
        if number:
            yield Text("")
        yield _rich(cut, columns)
    yield from (Text(line, style="dim") for line in cut.below)


def _cut(table: Table) -> Table:
    if len(table.rows) <= MANY:
        return table
    left_out = len(table.rows) - 2 * ENDS
    gap: list[Cell | str] = [""] * len(table.columns)
    gap[0] = Cell("⋮", style="dim")
    hint = f"⋮ {left_out:,} of {len(table.rows):,} rows left out; {table.hint} shows them"
    return replace(table, rows=[*table.rows[:ENDS], gap, *table.rows[-ENDS:]], below=[hint, *table.below])


def _blocks(table: Table, width: int) -> Iterator[list[int]]:
    """Columns that fit side by side, the label columns first in every block."""
    widths = [_width(table, i) + GAP for i in range(len(table.columns))]
    labels = [i for i, column in enumerate(table.columns) if column.label]
    others = [i for i, column in enumerate(table.columns) if not column.label]
    if not labels:
        yield others
        return
    room = width + GAP - sum(widths[i] for i in labels)
    block: list[int] = []
    for i in others:
        if block and sum(widths[j] for j in (*block, i)) > room:
            yield labels + block
            block = []
        block.append(i)
    yield labels + block


def fitting(width: int, build: Callable[[int], Table], sizes: Iterable[int]) -> Table:
    """The first table that is no wider than a terminal's `width`; `build` makes one for a size of its labels."""
    for size in sizes:
        table = build(size)
        if sum(_width(table, i) + GAP for i in range(len(table.columns))) - GAP <= width:
            break
    return table


def _width(table: Table, column: int) -> int:
    cells = [table.columns[column].heading, *(_text(row[column]) for row in table.rows)]
    return max(cell_len(line) for cell in cells for line in (cell.split("\n") or [""]))


def _rich(table: Table, columns: list[int]) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), header_style="")
    for i in columns:
        column = table.columns[i]
        heading = Text(column.heading, style="dim")
        rich.add_column(heading, justify="right" if column.right else "left", no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(table.rows):
        rich.add_row(*(_styled(row[i]) for i in columns), end_section=number in table.sections)
    return rich


def _text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def _styled(cell: Cell | str) -> Text:
    if isinstance(cell, str):
        return Text(cell)
    return Text(cell.text, style=cell.style if cell.heat is None else _heat(cell.heat))


def _heat(heat: float) -> Style:
    """A background between cold and hot, and writing that stands out from it. A figure has colours of its own."""
    at = min(max(heat, 0.0), 1.0) ** 0.5  # most weights are small: give them the larger part of the scale
    red, green, blue = (round(c + (h - c) * at) for c, h in zip(COLD, HOT, strict=True))
    colours = Style.parse(f"{'black' if at > 0.55 else 'white'} on rgb({red},{green},{blue})")
    return colours + Style.from_meta({"heat": at})


def fit(text: str, width: int) -> str:
    """At most `width` columns of a terminal, an ellipsis where something is missing; what tells equal tokens apart
    (it#2) stays."""
    if cell_len(text) <= width:
        return text
    numbered = NUMBERED.fullmatch(text)
    number = numbered[1] if numbered and len(numbered[1]) + 2 <= width else ""
    return set_cell_size(text, width - 1 - len(number)).rstrip() + "…" + number


def pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def share(weight: float) -> str:
    """.12, 1.00"""
    text = f"{weight:.2f}"
    return text[1:] if text.startswith("0") else text


def percent(p: float) -> str:
    return f"{100 * p:.0f}%" if p >= 0.00995 else f"{100 * p:.1f}%" if p >= 0.00095 else "0%" if p == 0 else "<.1%"


def signed(number: float, digits: int = 2) -> str:
    """+0.12, −3.40; no sign on what rounds to nothing."""
    text = f"{number:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def bar(size: float, full: float, width: int) -> str:
    """`width` blocks for `full`."""
    eighths = round(8 * width * size / full) if full > 0 else 0
    whole, part = divmod(min(eighths, 8 * width), 8)
    return "█" * whole + EIGHTHS[part].strip()


def spark(numbers: Sequence[float], top: float = 1.0) -> str:
    """One character a number; a dot where there is none."""
    steps = len(SPARKS) - 1
    return "".join("·" if x != x else SPARKS[min(steps, max(0, round(steps * x / top)))] for x in numbers)


def write_csv(records: Sequence[dict[str, Any]], stream: TextIO) -> None:
    """Every record's fields, in the order of their first appearance."""
    names = dict.fromkeys(name for record in records for name in record)
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
