from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from rich.console import Console

from cli.figure import write_svg
from cli.render import Cell, Column, Table, bar, fit, fitting, pad, percent, share, show, signed, spark, write_csv
from transformer.errors import InputError


def printed(table: Table, width: int = 60, paged: bool = False) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False, no_color=True)
    show(console, [table], paged)
    return stream.getvalue().splitlines()


def columns_of(line: str, text: str) -> int:
    """Where a text stands on a terminal."""
    return cell_len(line[: line.index(text)])


NAMES = ["plain", "苹果", "e\u0301te\u0301", "👩‍👩‍👧", "🙂x", "한국어", "naïve", "❤️", "ไทย"]


def test_columns_align_whatever_stands_in_them() -> None:
    table = Table("", [Column("name"), Column("n", right=True), Column("after")], [[n, "7", "|"] for n in NAMES])
    lines = printed(table)[2:]
    assert len({columns_of(line, "|") for line in lines}) == 1


def test_text_is_never_markup_and_nothing_is_lost() -> None:
    texts = ["[/INST]", "[bold]x[/bold]", ":smile:", "[red", "\\[x]"]
    lines = printed(Table("[i]", [Column("[b]")], [[t] for t in texts], above=["[/x]"], below=["[/y]"]))
    assert lines[0] == "[i]" and lines[1] == "[/x]" and lines[2] == "[b]" and lines[-1] == "[/y]"
    assert lines[4:-1] == texts


def test_a_wide_table_goes_on_below_with_its_labels() -> None:
    columns = [Column("row", label=True), *(Column(f"column{i}") for i in range(12))]
    table = Table("", columns, [[f"r{k}", *(f"{k}.{i}" for i in range(12))] for k in range(2)])
    lines = printed(table, width=42)
    assert all(cell_len(line) <= 42 for line in lines)
    assert sum(line.startswith("row") for line in lines) == 3
    assert sum(line.startswith("r1") for line in lines) == 3
    for i in range(12):
        assert sum(f"column{i} " in line + " " for line in lines) == 1


def test_a_long_table_is_cut_in_the_middle_on_a_terminal_only() -> None:
    table = Table("", [Column("n")], [[f"row {i}"] for i in range(200)], below=["end"], hint="--rows all")
    assert len(printed(table)) == 203
    cut = printed(table, paged=True)
    assert len(cut) == 2 + 41 + 2
    assert "row 19" in cut and "row 180" in cut and "row 20" not in cut and "row 179" not in cut
    assert "⋮ 160 of 200 rows left out; --rows all shows them" in cut
    short = Table("", [Column("n")], [[f"row {i}"] for i in range(60)])
    assert len(printed(short, paged=True)) == 62


def test_fitting_takes_the_first_that_fits() -> None:
    def build(size: int) -> Table:
        return Table(str(size), [Column("x" * size)], [])

    assert fitting(10, build, (30, 20, 10, 5)).title == "10"
    assert fitting(3, build, (30, 20)).title == "20"


def test_heat_is_colour_and_the_number_stays() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=40, force_terminal=True, color_system="truecolor")
    show(console, [Table("", [Column("x")], [[Cell(".93", heat=0.93)], [Cell(".01", heat=0.01)]])], False)
    text = stream.getvalue()
    assert ".93" in text and ".01" in text and text.count("48;2;") == 2
    assert "\x1b" not in "".join(printed(Table("", [Column("x")], [[Cell(".93", heat=0.93)]])))


def test_fit_and_pad_count_columns_of_a_terminal() -> None:
    assert fit("苹果苹果", 8) == "苹果苹果"
    assert cell_len(fit("苹果苹果苹", 8)) <= 8 and fit("苹果苹果苹", 8).endswith("…")
    assert fit("abcdefgh", 5) == "abcd…"
    assert fit("because#2", 7) == "beca…#2" and fit("a#22222", 4) == "a#2…"
    assert cell_len(pad("苹果", 7)) == 7


def test_numbers() -> None:
    assert [share(x) for x in (0.0, 0.004, 0.123, 0.996, 1.0)] == [".00", ".00", ".12", "1.00", "1.00"]
    assert [percent(x) for x in (0.0, 1e-6, 0.004, 0.125, 1.0)] == ["0%", "<.1%", "0.4%", "12%", "100%"]
    assert [signed(x) for x in (0.125, -3.4, 0.001, -0.001)] == ["+0.12", "−3.40", "0.00", "0.00"]
    assert bar(1.0, 1.0, 4) == "████" and bar(0.5, 1.0, 4) == "██" and bar(0.0, 1.0, 4) == "" and bar(9, 1, 4) == "████"
    assert bar(1.0, 0.0, 4) == "" and len(bar(0.33, 1.0, 4)) == 2
    assert spark([0.0, 0.5, 1.0, float("nan")]) == "▁▅█·" and spark([2.0]) == "█"


def test_csv_quotes_and_keeps_every_field() -> None:
    stream = io.StringIO()
    write_csv([{"a": 'x,"y"\n', "b": None}, {"a": 1, "c": 0.5}], stream)
    assert stream.getvalue() == 'a,b,c\n"x,""y""\n",,\n1,,0.5\n'


def drawn(path: Path, *tables: Table) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    """A figure's text, and what is in it: the tag and attributes of every shape, a text's under its words."""
    write_svg(path, tables, 40, "a & b")
    text = path.read_text(encoding="utf-8")
    nodes = list(ElementTree.fromstring(text))
    return text, [(node.text or node.tag.partition("}")[2], dict(node.attrib)) for node in nodes]


def test_a_figure_is_a_whole_svg_that_asks_nobody_for_anything(tmp_path: Path) -> None:
    rows = [[Cell("苹果 <&>", style="bold"), Cell(".50", heat=0.5)], ["x", Cell("y", style="dim")]]
    text, nodes = drawn(tmp_path / "f.svg", Table("title <b>", [Column("a"), Column("b")], rows))
    assert text.count("http") == 1 and 'xmlns="http://www.w3.org/2000/svg"' in text
    assert not any(word in text for word in ("@font-face", "url(", "<script", "href"))
    assert {"title", "<b>", "苹果", "<&>", ".50", "x", "y"} <= {name for name, _ in nodes}


def test_a_figure_keeps_the_columns_of_a_terminal(tmp_path: Path) -> None:
    rows = [["苹果 <&>", ".50"], ["x", "y"]]
    places = dict(drawn(tmp_path / "f.svg", Table("", [Column("a"), Column("b")], rows))[1])
    x = {name: (float(places[name]["x"]) - 16) / 8.4 for name in ("苹果", "<&>", ".50", "x", "y")}
    assert x == pytest.approx({"苹果": 0, "<&>": 5, ".50": 10, "x": 0, "y": 10})
    assert float(places["苹果"]["textLength"]) == pytest.approx(4 * 8.4)


def test_bars_and_warmth_are_shapes(tmp_path: Path) -> None:
    _, nodes = drawn(tmp_path / "f.svg", Table("", [Column("a")], [["██▌"], ["▁█"], [Cell("1", heat=1.0)]]))
    _paper, rule, long, low, high, warm = [shape for name, shape in nodes if name == "rect"]
    assert rule["height"] == "1"
    assert float(long["width"]) == pytest.approx(2.5 * 8.4)
    assert float(high["height"]) == pytest.approx(8 * float(low["height"]))
    assert warm["fill"] == "#f59e28" and not any("█" in name for name, _ in nodes)


def test_a_figure_that_cannot_be_written_is_an_error_of_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        write_svg(tmp_path / "nowhere" / "f.svg", [], 40, "")
