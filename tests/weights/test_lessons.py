from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from transformer.errors import EnvironmentFailed
from weights.lessons import KeptLessons

LESSONS = [torch.arange(6, dtype=torch.uint8).view(2, 3) + i for i in range(3)]


def kept(directory: Path, lessons: list[Tensor] = LESSONS) -> KeptLessons:
    found = KeptLessons(directory / "lessons", 0, 2, 3)
    for number, lesson in enumerate(lessons):
        found[100 * number] = lesson
    return found


def test_lessons_are_found_again_by_where_their_sample_begins(tmp_path: Path) -> None:
    for found in (kept(tmp_path), KeptLessons(tmp_path / "lessons", 0, 2, 3)):
        assert 100 in found and 50 not in found
        assert all(torch.equal(found[100 * number], lesson) for number, lesson in enumerate(LESSONS))
    assert 100 not in KeptLessons(tmp_path / "lessons", 1, 2, 3)  # another process has its own


@pytest.mark.parametrize(("name", "less"), [("0.lessons", 1), ("0.starts", 3)])
def test_what_a_killed_process_left_half_written_is_written_again(tmp_path: Path, name: str, less: int) -> None:
    kept(tmp_path)
    path = tmp_path / "lessons" / name
    path.write_bytes(path.read_bytes()[:-less])
    found = KeptLessons(tmp_path / "lessons", 0, 2, 3)
    assert 100 in found and 200 not in found and torch.equal(found[100], LESSONS[1])
    found[200] = LESSONS[2]
    assert torch.equal(KeptLessons(tmp_path / "lessons", 0, 2, 3)[200], LESSONS[2])


def test_a_place_that_cannot_be_written_is_the_environments_fault(tmp_path: Path) -> None:
    (tmp_path / "lessons").write_text("not a directory")
    with pytest.raises(EnvironmentFailed, match="lessons"):
        kept(tmp_path)
