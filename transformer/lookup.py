"""Guesses of what comes next, from what came before: where the last few tokens stood already, what followed them."""

from __future__ import annotations

from collections.abc import Iterable

LENGTHS = (3, 2)  # tokens that must agree; more are surer


class Lookup:
    def __init__(self, ids: Iterable[int], most: int):
        """Guesses up to `most` tokens at once, none if that is 0."""
        self.ids: list[int] = []
        self.most = most
        self.behind: dict[tuple[int, ...], int] = {}  # where the token stands that last followed these
        for id in ids if most else ():
            self.add(id)

    def add(self, id: int) -> None:
        if not self.most:
            return
        for length in LENGTHS:
            if len(self.ids) >= length:
                self.behind[tuple(self.ids[-length:])] = len(self.ids)
        self.ids.append(id)

    def guess(self) -> list[int]:
        for length in LENGTHS if self.most else ():
            at = self.behind.get(tuple(self.ids[-length:]))
            if at is not None:
                return self.ids[at : at + self.most]
        return []
