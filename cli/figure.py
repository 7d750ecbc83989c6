"""What was printed, as an SVG of its own: no fonts from elsewhere, no script, the terminal's columns kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from io import StringIO
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from cli.render import EIGHTHS, SPARKS, Table, flow
from transformer.errors import InputError

WIDE, HIGH, SIZE, MARGIN = 8.4, 19, 14, 16  # a column, a line, the letters, the border: pixels
PAPER, INK, FAINT, BAR, HEAT = "#ffffff", "#1c1c1c", "#767676", "#5b84b1", (245, 158, 40)
BLOCKS = EIGHTHS.strip() + SPARKS
PIECE = re.compile(f"─+|[{BLOCKS}]+|[^ ─{BLOCKS}]+")  # what is drawn on its own: a rule, blocks, a word


def write_svg(path: Path, tables: Iterable[Table], width: int, title: str) -> None:
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system="truecolor")
    lines = [line for part in flow(tables, width, paged=False) for line in console.render_lines(part, pad=False)]
    try:
        path.write_text(_svg(lines, title), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _svg(lines: list[list[Segment]], title: str) -> str:
    columns = max((cell_len("".join(segment.text for segment in line).rstrip()) for line in lines), default=0)
    width, height = columns * WIDE + 2 * MARGIN, len(lines) * HIGH + 2 * MARGIN
    body = "".join(_line(segments, MARGIN + number * HIGH) for number, segments in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{SIZE}" fill="{INK}">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}</svg>\n'
    )


def _line(segments: list[Segment], top: float) -> str:
    """Every word at the column where a terminal has it, so that no font can push the next one aside."""
    drawn, column = "", 0
    for text, style, _ in segments:
        style = style or Style()
        if (heat := style.meta.get("heat")) is not None:
            drawn += _rect(MARGIN + column * WIDE, top, cell_len(text) * WIDE, HIGH, _warmth(heat))
        for piece in PIECE.finditer(text):
            x = MARGIN + (column + cell_len(text[: piece.start()])) * WIDE
            drawn += _piece(piece[0], x, top, style)
        column += cell_len(text)
    return drawn


def _piece(text: str, x: float, top: float, style: Style) -> str:
    """Blocks and rules as shapes, because fonts leave gaps between them; words as they are."""
    if text[0] == "─":
        return _rect(x, top + HIGH / 2, len(text) * WIDE, 1, FAINT)
    if text[0] not in BLOCKS:
        return (
            f'<text x="{x:g}" y="{top + HIGH - 5:g}" textLength="{cell_len(text) * WIDE:g}" '
            f'lengthAdjust="spacingAndGlyphs"{_ink(style)}>{escape(text)}</text>\n'
        )
    if set(text) <= set(EIGHTHS):
        return _rect(x, top + 4, sum(map(EIGHTHS.index, text)) / 8 * WIDE, HIGH - 7, BAR)
    heights = [(SPARKS.index(mark) + 1) / len(SPARKS) * (HIGH - 5) for mark in text]
    bars = (_rect(x + i * WIDE, top + HIGH - 3 - high, WIDE - 1, high, BAR) for i, high in enumerate(heights))
    return "".join(bars)


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"/>\n'


def _warmth(heat: float) -> str:
    """From almost paper to the warmest."""
    at = 0.04 + 0.96 * heat
    return "#" + "".join(f"{round(255 + (warm - 255) * at):02x}" for warm in HEAT)


def _ink(style: Style) -> str:
    weight = ' font-weight="bold"' if style.bold else ""
    if style.dim:
        return f'{weight} fill="{FAINT}"'
    if style.color is None or style.color.is_default or "heat" in style.meta:
        return weight
    return f'{weight} fill="{style.color.get_truecolor(DEFAULT_TERMINAL_THEME).hex}"'
