"""What teachers said of samples, on disk: asked once, read as often as the sample comes.

N.starts    where in the text each sample begins, eight bytes each
N.lessons   what was said of them, in the same order: a byte a token and word of the vocabulary

Both only grow, so a killed run keeps all but the last. N is the number of the process.
"""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from weights.durable import trouble

if TYPE_CHECKING:
    from torch import Tensor


class KeptLessons:
    def __init__(self, directory: Path, rank: int, length: int, vocabulary: int):
        self.shape, self.size = (length, vocabulary), length * vocabulary
        self.starts, self.lessons = directory / f"{rank}.starts", directory / f"{rank}.lessons"
        with trouble(directory):
            directory.mkdir(exist_ok=True)
            for path in (self.starts, self.lessons):
                path.touch()
            whole = min(self.starts.stat().st_size // 8, self.lessons.stat().st_size // self.size)
            os.truncate(self.starts, 8 * whole)
            os.truncate(self.lessons, self.size * whole)
            self.places = {start: place for place, start in enumerate(array("q", self.starts.read_bytes()))}

    def __contains__(self, start: object) -> bool:
        return start in self.places

    def __getitem__(self, start: int) -> Tensor:
        import torch

        lesson = bytearray(self.size)
        with trouble(self.lessons), self.lessons.open("rb") as file:
            file.seek(self.size * self.places[start])
            file.readinto(lesson)
        return torch.frombuffer(lesson, dtype=torch.uint8).view(self.shape)

    def __setitem__(self, start: int, lesson: Tensor) -> None:
        for path, data in ((self.lessons, lesson.numpy().tobytes()), (self.starts, array("q", [start]).tobytes())):
            with trouble(path), path.open("ab") as file:
                file.write(data)
        self.places[start] = len(self.places)
