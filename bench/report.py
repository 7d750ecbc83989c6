"""The numbers as JSON, as a table and as a picture."""

from __future__ import annotations

import html
import json
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import date
from itertools import groupby, product
from pathlib import Path
from statistics import median
from typing import Any

from bench.measures import Row, Setting

KEPT = [field.name for field in fields(Row)]
BAR, LABEL, WIDTH, LINE = 420, 220, 760, 22
NOTES = "\n## What the numbers say\n"  # written by hand; what follows it stays
ABOUT = """# Benchmarks

Taken with `python -m bench`: everyone in a process of their own, in turns, one at a time, after a round that does not
count. Medians, with the least and the most of all rounds. The share is that of the speed at which memory alone would
allow it: its best read between the turns, divided by the bytes that a token must read. A run replaces the lines of
what it measures.
"""


def machine() -> dict[str, Any]:
    import torch

    cpu = "unknown"
    if (info := Path("/proc/cpuinfo")).exists():
        cpu = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), cpu)
    return {
        "date": date.today().isoformat(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "widest vectors": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load at the end": round(os.getloadavg()[0], 1),
    }


def write_report(setting: Setting, out: Path) -> None:
    """What was not measured this time keeps its numbers, if they are of the same model and machine."""
    out.mkdir(parents=True, exist_ok=True)
    about = {**machine(), "model": setting.model.name, "threads": setting.threads}
    data, page = out / "benchmarks.json", out / "benchmarks.md"
    measured = {row.measure for row in setting.rows}
    before = json.loads(data.read_text()) if data.exists() else {"machine": {}, "rows": []}
    same = all(before["machine"].get(key) == about[key] for key in ("model", "threads", "cpu", "torch"))
    old = [Row(**{key: row[key] for key in KEPT}) for row in before["rows"] if row["measure"] not in measured]
    rows = old * same + setting.rows
    numbers = [{**vars(row), "median": row.median} for row in rows]
    data.write_text(json.dumps({"machine": about, "rows": numbers}, indent=1) + "\n")
    _, mark, notes = page.read_text().partition(NOTES) if page.exists() else ("", "", "")
    page.write_text(as_markdown(rows, about) + mark + notes)
    (out / "benchmarks.svg").write_text(as_svg(rows))


def by_measure(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    return [(name, list(group)) for name, group in groupby(rows, key=lambda row: row.measure)]


def as_markdown(rows: list[Row], about: dict[str, Any]) -> str:
    lines = [ABOUT, *(f"- {name}: {value}" for name, value in about.items()), ""]
    if side_by_side := list(_ratios(rows)):
        lines += ["| | times as fast | least – most |", "|-|-:|-:|", *side_by_side, ""]
    for measure, group in by_measure(rows):
        head = f"| rounds: {len(group[0].values)} | {group[0].unit} | least – most | share of the limit |"
        lines += [f"## {measure}", "", head, "|-|-:|-:|-:|"]
        for row in group:
            share = f"{row.median / row.limit:.0%}" if row.limit else ""
            spread = f"{_number(min(row.values))} – {_number(max(row.values))}"
            lines.append(f"| {row.name} | {_number(row.median)} | {spread} | {share} |")
        lines.append("")
    return "\n".join(lines) + "\n![as bars](benchmarks.svg)\n"


def _ratios(rows: list[Row]) -> Iterator[str]:
    """Ours against each of the others, round by round: what slowed the machine down in one slowed down both."""
    for measure, group in by_measure(row for row in rows if row.unit in ("tokens/s", "GFLOP/s")):
        for ours, theirs in product(group, group):
            if ours.name.startswith("tfm") and not theirs.name.startswith("tfm"):
                ratios = [a / b for a, b in zip(ours.values, theirs.values, strict=True)]
                spread = f"{min(ratios):.2f} – {max(ratios):.2f}"
                yield f"| {measure}: {ours.name} / {theirs.name} | {median(ratios):.2f} | {spread} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def as_svg(rows: list[Row]) -> str:
    """A group of bars for each measure; a thin line from the least to the most, a tick at the limit."""
    parts, y = [], 10
    for measure, group in by_measure(rows):
        parts.append(_text(8, y + 16, f"{measure} ({group[0].unit})", bold=True))
        y += LINE + 4
        longest = max(max(row.values + ([row.limit] if row.limit else [])) for row in group)
        for row in group:
            parts += [_text(8, y + 14, row.name), *_bar(row, y, BAR / longest)]
            y += LINE
        y += 12
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _bar(row: Row, y: int, scale: float) -> list[str]:
    colour = "#2f6f9f" if row.name.startswith("tfm") else "#b9b2a5"
    low, high = (LABEL + value * scale for value in (min(row.values), max(row.values)))
    parts = [
        f'<rect x="{LABEL}" y="{y + 3}" width="{row.median * scale:.1f}" height="14" fill="{colour}"/>',
        f'<path d="M{low:.1f} {y + 10}H{high:.1f}" stroke="#333"/>',
        _text(LABEL + BAR + 12, y + 14, _number(row.median)),
    ]
    if row.limit:
        parts.append(f'<path d="M{LABEL + row.limit * scale:.1f} {y + 2}v16" stroke="#c33" stroke-width="2"/>')
    return parts


def _text(x: float, y: float, text: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}"{weight}>{html.escape(text)}</text>'
