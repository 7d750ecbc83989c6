"""--layer and --head: attention as it is, a heat map with its numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

from cli.question import Question, choose, span
from cli.render import Cell, Column, Table, fit, fitting, share
from cli.subject import Subject
from cli.views.view import LABEL, View, number
from transformer.explain.matrix import Matrix, Which

WIDTHS = (8, 7, 6, 5, 4)


class MatrixView(View):
    key = "attention"
    caveat = "a row is what one token gives to those before it, summing to 1; it cannot see what follows"

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        config, n = subject.model.config, len(subject.cells)
        layers = choose(question.layer or "mean", len(config.layers), "--layer")
        heads = choose(question.head or "mean", config.heads, "--head")
        self.rows, self.columns = span(question.rows, n, "--rows"), span(question.cols, n, "--cols")
        self.matrix = Matrix(config, n, layers, heads, self.rows)
        self.observers = subject.watch(self.matrix)

    def _weights(self) -> list[tuple[Which, Which, list[list[float]]]]:
        """By layer and head, rows cut behind the token itself."""
        return [
            (*key, [row[: i + 1] for i, row in zip(self.rows, self.matrix.weights[key].tolist(), strict=True)])
            for key in self.matrix.chosen
        ]

    def data(self) -> list[dict[str, Any]]:
        return [
            {
                "layer": layer,
                "head": head,
                "rows": list(self.rows),
                "weights": [[number(w) for w in row] for row in rows],
            }
            for layer, head, rows in self._weights()
        ]

    def records(self) -> list[dict[str, Any]]:
        return [
            {"layer": layer, "head": head, "query": i, "key": j, "weight": number(row[j])}
            for layer, head, rows in self._weights()
            for i, row in zip(self.rows, rows, strict=True)
            for j in self.columns
            if j <= i
        ]

    def tables(self, width: int) -> list[Table]:
        return [fitting(width, partial(self._table, *found), WIDTHS) for found in self._weights()]

    def _table(self, layer: Which, head: Which, rows: list[list[float]], size: int) -> Table:
        names = self.subject.names
        title = f"{_named('layer', layer)}, {_named('head', head)}: rows read columns"
        columns = [Column("#", right=True, label=True), Column("", label=True)]
        columns += [Column(f"{j}\n{fit(names[j], size)}", right=True) for j in self.columns]
        body = [
            [
                Cell(str(i), style="dim"),
                Cell(fit(names[i], LABEL), style="bold"),
                *(self._cell(row, j) for j in self.columns),
            ]
            for i, row in zip(self.rows, rows, strict=True)
        ]
        return Table(title, columns, body, hint="--rows a:b or --rows all")

    def _cell(self, row: list[float], j: int) -> Cell | str:
        if j >= len(row):
            return ""  # the future
        return Cell(share(row[j]), heat=row[j]) if row[j] else "·"


def _named(what: str, which: Which) -> str:
    return f"mean of all {what}s" if which == "mean" else f"{what} {which}"
