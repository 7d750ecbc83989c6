"""Curves of a run: dots on a terminal, an SVG for a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Points = Sequence[tuple[float, float]]

LABEL = 8  # columns
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bits of a braille cell, by row and column


def smoothed(points: Points, weight: float = 0.9) -> list[tuple[float, float]]:
    """An exponential mean that does not start too low."""
    answer, mean, mass = [], 0.0, 0.0
    for x, y in points:
        mean, mass = weight * mean + (1 - weight) * y, weight * mass + (1 - weight)
        answer.append((x, mean / mass))
    return answer


def braille(points: Points, width: int, height: int) -> list[str]:
    """Lines of a plot whose x axis runs from 0 to 1 and whose y axis is labelled with its ends."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if not points:
        return []
    low, high = min(y for _, y in points), max(y for _, y in points)
    columns, rows = 2 * (width - LABEL), 4 * height
    cells = [[0] * (width - LABEL) for _ in range(height)]
    dots = [
        (min(x, 1.0) * (columns - 1), (high - y) / (high - low) * (rows - 1) if high > low else rows - 1)
        for x, y in points
    ]
    for (x0, y0), (x1, y1) in pairwise([dots[0], *dots]):
        far = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
        for i in range(far):  # few points are joined to a line
            column, row = round(x1 + (x0 - x1) * i / far), round(y1 + (y0 - y1) * i / far)
            cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    labels = [f"{high:{LABEL - 1}.3f} ", *[" " * LABEL] * (height - 2), f"{low:{LABEL - 1}.3f} "]
    return [label + "".join(chr(0x2800 + bits) for bits in line) for label, line in zip(labels, cells, strict=True)]


W, H, LEFT, RIGHT, TOP, BOTTOM = 800, 420, 60, 60, 30, 50


def loss_svg(rows: Sequence[dict[str, Any]]) -> str:
    """Training loss on the left axis, bits per byte of unseen text on the right, over the steps."""
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    valid = [(row["step"], row["valid_bpb"]) for row in rows if "valid_bpb" in row]
    last = max((x for x, _ in [*losses, *valid]), default=1) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="sans-serif" font-size="12">',
        f'<rect width="{W}" height="{H}" fill="white"/>',
    ]
    for points, colour, side, title in (
        (smoothed(losses), "#1f77b4", "left", "training loss, nats a token"),
        (valid, "#d62728", "right", "validation, bits per byte"),
    ):
        parts += _curve(points, last, colour, side, title)
    for step in _ticks(0, last):
        x = _x(step, last)
        parts.append(f'<text x="{x:.1f}" y="{H - BOTTOM + 18}" text-anchor="middle">{step:g}</text>')
    parts.append(f'<text x="{W / 2}" y="{H - 10}" text-anchor="middle">step</text>')
    return "\n".join([*parts, "</svg>", ""])


def _curve(points: Points, last: float, colour: str, side: str, title: str) -> list[str]:
    if not points:
        return []
    low, high = min(y for _, y in points), max(y for _, y in points)
    high = high if high > low else low + 1

    def height(value: float) -> float:
        return TOP + (high - value) / (high - low) * (H - TOP - BOTTOM)

    line = " ".join(f"{_x(x, last):.1f},{height(y):.1f}" for x, y in points)
    edge, anchor, x = (LEFT, "end", LEFT - 6) if side == "left" else (W - RIGHT, "start", W - RIGHT + 6)
    parts = [
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
        f'<line x1="{edge}" y1="{TOP}" x2="{edge}" y2="{H - BOTTOM}" stroke="{colour}"/>',
        f'<text x="{edge}" y="{TOP - 10}" text-anchor="{"start" if side == "left" else "end"}" '
        f'fill="{colour}">{title}</text>',
    ]
    for value in _ticks(low, high):
        parts.append(
            f'<text x="{x}" y="{height(value) + 4:.1f}" text-anchor="{anchor}" fill="{colour}">{value:g}</text>'
        )
    return parts


def _x(step: float, last: float) -> float:
    return LEFT + step / last * (W - LEFT - RIGHT)


def _ticks(low: float, high: float) -> list[float]:
    """Some round numbers between two others."""
    rough = (high - low) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)
    first = math.ceil(low / step)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]
