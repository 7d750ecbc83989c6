"""What a view is, and the cells that several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from cli.question import Question, find
from cli.render import Table, bar, fit, pad, share
from cli.subject import Subject
from transformer.recording import Observer

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.explain.overview import Sharp

LABEL = 14  # columns that a token may take in a table
SIZES = (14, 12, 10, 9, 8, 7, 6, 5, 4)  # of labels, the first that fits
BAR = 6


class View(ABC):
    """Asks its question by observers of one shared pass, or by passes of its own in `finish`."""

    key: str  # in the JSON object
    caveat: str  # one line: what the numbers are and are not
    in_pass = True  # it needs the shared pass

    def __init__(self, subject: Subject, question: Question):
        self.subject, self.question = subject, question
        self.observers: list[Observer] = []

    def needs(self) -> int:
        """Bytes above the loaded model that its own passes take."""
        return 0

    def finish(self, x: Tensor) -> None:  # noqa: B027 - a view may have nothing left to do
        """The shared pass is over; x (n, C) is the stream behind its last block."""

    @abstractmethod
    def data(self) -> Any:
        """For --json."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """For --csv."""

    @abstractmethod
    def tables(self, width: int) -> list[Table]: ...

    def caveats(self) -> list[str]:
        return [self.caveat]

    def failed(self) -> bool:
        return False


def number(value: float) -> float | None:
    """Seven digits: all that fp32 has. What is no number is null in JSON."""
    return float(f"{value:.7g}") if value == value else None


def chosen_token(subject: Subject, question: Question) -> int:
    """The cell that --token names; the last one if it names none."""
    if question.token is None:
        return len(subject.cells) - 1
    return find(question.token, subject.labels)


def named(subject: Subject, i: int) -> str:
    """A token in running text."""
    return f"“{subject.names[i]}”"


class Entries:
    """“token weight bar”, laid out so that they stand under one another in a column of text."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[tuple[int, float]]], size: int, a_line: int = 2):
        self.names, self.a_line = names, a_line
        self.full = max((weight for row in rows for _, weight in row), default=1.0)
        self.width = min(size, max((cell_len(names[j]) for row in rows for j, _ in row), default=1))
        self.bar = BAR if size > 6 else BAR // 2

    def text(self, row: Sequence[tuple[int, float]]) -> str:
        entries = []
        for j, weight in row:
            name = pad(fit(self.names[j], self.width), self.width)
            entries.append(f"{name} {share(weight):>4} {pad(bar(weight, self.full, self.bar), self.bar)}")
        lines = [entries[i : i + self.a_line] for i in range(0, len(entries), self.a_line)]
        return "\n".join("  ".join(line).rstrip() for line in lines) or "—"


def sharp(names: Sequence[str], found: Sharp | None, width: int) -> str:
    if found is None:
        return "—"
    return f"{found.layer}.{found.head} → {fit(names[found.token], width)} {share(found.weight)}"
