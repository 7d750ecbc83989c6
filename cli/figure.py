"""What was printed, as an SVG of its own: no fonts from elsewhere, no script, the terminal's columns kept."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from io import StringIO
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from cli.render import Table, flow
from transformer.errors import InputError

WIDE, HIGH, SIZE, MARGIN = 8.4, 19, 14, 16  # a column, a line, the letters, the border: pixels
PAPER, INK, FAINT = "#ffffff", "#1c1c1c", "#767676"


def write_svg(path: Path, tables: Iterable[Table], width: int, title: str) -> None:
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system="truecolor")
    lines = [line for part in flow(tables, width, paged=False) for line in console.render_lines(part, pad=False)]
    try:
        path.write_text(_svg(lines, width, title), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _svg(lines: list[list[Segment]], columns: int, title: str) -> str:
    width, height = columns * WIDE + 2 * MARGIN, len(lines) * HIGH + 2 * MARGIN
    body = "".join(_line(segments, MARGIN + number * HIGH) for number, segments in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{SIZE}" fill="{INK}">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}</svg>\n'
    )


def _line(segments: list[Segment], top: float) -> str:
    """Backgrounds and words; every run of text is given exactly the columns it has on a terminal."""
    drawn, column = "", 0
    for text, style, _ in segments:
        columns = cell_len(text)
        x, wide = MARGIN + column * WIDE, columns * WIDE
        column += columns
        style = style or Style()
        if style.bgcolor is not None and not style.bgcolor.is_default:
            fill = style.bgcolor.get_truecolor(DEFAULT_TERMINAL_THEME).hex
            drawn += f'<rect x="{x:g}" y="{top:g}" width="{wide:g}" height="{HIGH}" fill="{fill}"/>\n'
        if text.strip():
            drawn += (
                f'<text x="{x:g}" y="{top + HIGH - 5:g}" textLength="{wide:g}" lengthAdjust="spacingAndGlyphs" '
                f'xml:space="preserve"{_ink(style)}>{escape(text)}</text>\n'
            )
    return drawn


def _ink(style: Style) -> str:
    weight = ' font-weight="bold"' if style.bold else ""
    if style.dim:
        return f'{weight} fill="{FAINT}"'
    if style.color is None or style.color.is_default:
        return weight
    return f'{weight} fill="{style.color.get_truecolor(DEFAULT_TERMINAL_THEME).hex}"'
