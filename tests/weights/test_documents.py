from __future__ import annotations

from pathlib import Path

import pytest

from transformer.errors import InputError
from weights import documents
from weights.documents import Part, lot, read_parts, validation_share


def parts(path: Path, data: bytes) -> list[Part]:
    path.write_bytes(data)
    return list(read_parts(path))


def texts(path: Path, data: bytes) -> list[str]:
    return [part.text for part in parts(path, data)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "text.txt"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n \n\n", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\ntwo\n", ["one\n\ntwo"]),
        (b"one\n<|endoftext|>\ntwo\n<|endoftext|>\n", ["one", "two"]),
        (b"one\r\n<|endoftext|>\r\ntwo\r\n", ["one", "two"]),
        (b"one\n<|endoftext|>", ["one"]),
        (b"<|endoftext|>\n<|endoftext|>\none", ["one"]),
        (b"one <|endoftext|> two\n", ["one <|endoftext|> two"]),
        (b" <|endoftext|>\none", [" <|endoftext|>\none"]),
        (b"\xef\xbb\xbfone", ["one"]),
        (b"a\rb\r", ["a\rb\r"]),
    ],
)
def test_documents_end_at_separator_lines(file: Path, data: bytes, expected: list[str]) -> None:
    assert texts(file, data) == expected


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_the_size_of_blocks_does_not_matter(file: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "größer 🙂\r\nzwei\r\n<|endoftext|>\r\ndrei\r\n<|endoftext|>\nvier\n".encode()
    whole = texts(file, data)
    monkeypatch.setattr(documents, "BLOCK", block)
    assert texts(file, data) == whole == ["größer 🙂\nzwei", "drei", "vier"]


def test_long_documents_come_in_parts_cut_between_words(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BLOCK", 64)
    monkeypatch.setattr(documents, "PART", 50)
    monkeypatch.setattr(documents, "SLACK", 20)
    text = " ".join(f"word{i}" for i in range(100))
    found = parts(file, f"{text}\n<|endoftext|>\nshort\n".encode())
    assert "".join(part.text for part in found[:-1]) == text and found[-1] == Part("short", True)
    assert [part.first for part in found] == [True] + [False] * (len(found) - 2) + [True]
    assert all(len(part.text) <= 70 and part.text.startswith(" word") for part in found[1:-1])


def test_one_giant_word_is_cut_somewhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PART", 50)
    monkeypatch.setattr(documents, "SLACK", 20)
    found = parts(file, b"x" * 500)
    assert "".join(part.text for part in found) == "x" * 500 and len(found) > 5


@pytest.mark.parametrize(
    ("data", "offset"), [(b"abc\xffdef", 3), (b"\xc3", 0), (b"12345678\xe2\x82", 8), (b"12345\xe2\x28\xa1", 5)]
)
@pytest.mark.parametrize("block", [2, 1000])
def test_what_is_not_utf8_is_refused_with_its_place(
    file: Path, data: bytes, offset: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "BLOCK", block)
    with pytest.raises(InputError, match=rf"text.txt: not UTF-8 at byte {offset}\b"):
        parts(file, data)


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.txt: No such file"):
        list(read_parts(tmp_path / "none.txt"))


def test_a_lot_depends_on_the_text_alone_and_is_fair() -> None:
    lots = [lot(f"story {i}") for i in range(2000)]
    assert lot("story 7") == lots[7] and all(0 <= number < 1 for number in lots)
    assert 140 < sum(number < 0.1 for number in lots) < 260


def test_the_share_shrinks_as_the_text_grows() -> None:
    assert validation_share(100) == validation_share(10**6) == 0.1
    assert validation_share(10**8) == pytest.approx(0.01)
