from __future__ import annotations

from pathlib import Path

import pytest

from transformer.errors import InputError
from weights.sources import Source, merged, parse_sources


def test_weights_and_names() -> None:
    (sources,) = parse_sources(["a/stories.txt:2", "fables.txt", "b/stories.txt:0.5", "odd:name.txt"])
    assert [(source.name, source.weight) for source in sources] == [
        ("a/stories.txt", 2.0), ("fables", 1.0), ("b/stories.txt", 0.5), ("odd:name", 1.0)
    ]  # fmt: skip


def test_two_lists_agree_on_names_and_share_files() -> None:
    main, anneal = parse_sources(["x.txt", "y.txt:3"], ["y.txt"])
    assert [s.name for s in main] == ["x", "y"] and anneal == [Source("y", (Path("y.txt"),))]
    assert merged(main, anneal) == [Source("x", (Path("x.txt"),)), Source("y", (Path("y.txt"),), 3.0)]


def test_many_files_of_a_directory_are_one_source() -> None:
    (sources,) = parse_sources([*(f"tales/{i}.txt" for i in range(40)), "extra/a.txt:2"])
    assert [(source.name, len(source.paths)) for source in sources] == [("tales", 40), ("a", 1)]


def test_a_directory_is_all_text_below_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b.txt", "in/a.md", "c.jsonl", "picture.png"):
        (tmp_path / name).write_text("12345")
    source = Source("all", (tmp_path,))
    assert [file.name for file in source.files()] == ["b.txt", "c.jsonl", "a.md"] and source.size() == 15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["a.txt", "a.txt"], "a.txt: given twice"), (["a.txt:0"], "between 0 and 1000, got 0"), (["a:5000"], "got 5000")],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_sources(arguments)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.txt: no such file"):
        Source("none", (tmp_path / "none.txt",)).files()
    with pytest.raises(InputError, match=r"no .txt, .md, .jsonl file"):
        Source("empty", (tmp_path,)).files()
