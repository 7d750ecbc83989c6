"""--lens: what each layer would predict if it were the last."""

from __future__ import annotations

from typing import Any

from cli.question import Question, span
from cli.render import Cell, Column, Table, fit, percent
from cli.subject import Subject
from cli.views.view import View, chosen_token, named, number
from transformer.explain.lens import Lens

SHOWN = 5
NAME = 8  # columns of a predicted token
TINY = 0.00095  # a probability that would not show


class LensView(View):
    key = "lens"
    caveat = (
        "the lens reads every layer through the final norm and head, its statistics taken anew; early layers "
        "write in another basis, so their guesses may mean little"
    )

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        if question.token is not None:
            self.rows = [chosen_token(subject, question)]
        else:
            self.rows = list(span(question.rows, len(subject.cells), "--rows"))
        self.pieces = [subject.cells[i][-1] for i in self.rows]
        self.lens = Lens(subject.model, subject.ids, self.pieces, question.top or SHOWN)
        self.observers = [self.lens]

    def _following(self, place: int) -> int | None:
        """The token that really comes next; none behind the last."""
        piece = self.pieces[place] + 1
        return self.subject.ids[piece] if piece < len(self.subject.ids) else None

    def data(self) -> dict[str, Any]:
        ids, p, rank = self.lens.ids.tolist(), self.lens.p.tolist(), self.lens.actual_rank.tolist()
        name, places = self.subject.surface, range(len(self.rows))
        known = [self._following(place) is not None for place in places]
        layers = [
            {
                "layer": "embedding" if depth == 0 else depth - 1,
                "predictions": [
                    [
                        {"id": i, "text": name(i), "p": number(x)}
                        for i, x in zip(ids[depth][k], p[depth][k], strict=True)
                    ]
                    for k in places
                ],
                "actual_rank": [rank[depth][k] if known[k] else None for k in places],
                "actual_p": [number(float(self.lens.actual_p[depth, k])) if known[k] else None for k in places],
            }
            for depth in range(len(ids))
        ]
        actual = [self._following(place) for place in places]
        return {"rows": self.rows, "actual": actual, "layers": layers}

    def records(self) -> list[dict[str, Any]]:
        data = self.data()
        return [
            {
                "layer": layer["layer"],
                "index": row,
                "predicted": layer["predictions"][place][0]["text"],
                "predicted_p": layer["predictions"][place][0]["p"],
                "actual": None if data["actual"][place] is None else self.subject.surface(data["actual"][place]),
                "actual_rank": layer["actual_rank"][place],
                "actual_p": layer["actual_p"][place],
            }
            for layer in data["layers"]
            for place, row in enumerate(self.rows)
        ]

    def tables(self, width: int) -> list[Table]:
        return [self._one() if len(self.rows) == 1 else self._many()]

    def _actual(self, depth: int, place: int) -> str:
        """Rank and probability of the token that follows; what is next to nothing is left to the rank."""
        if self._following(place) is None:
            return ""
        rank, p = int(self.lens.actual_rank[depth, place]), float(self.lens.actual_p[depth, place])
        return f"#{rank} {percent(p)}" if p >= TINY else f"#{rank}"

    def _many(self) -> Table:
        subject = self.subject
        columns = [Column("layer", right=True, label=True)]
        for place, i in enumerate(self.rows):
            following = self._following(place)
            says = "?" if following is None else fit(subject.name(following), NAME)
            columns.append(Column(f"{i} {fit(subject.names[i], NAME)}\n→ {says}"))
        body: list[list[Cell | str]] = []
        for depth in range(len(self.lens.ids)):
            row: list[Cell | str] = [Cell(_depth(depth), style="dim")]
            for place in range(len(self.rows)):
                guess = fit(subject.name(int(self.lens.ids[depth, place, 0])), NAME)
                known = self._following(place) is not None
                sure = float(self.lens.actual_p[depth, place] if known else self.lens.p[depth, place, 0])
                row.append(Cell(f"{guess} {self._actual(depth, place)}".rstrip(), heat=sure))
            body.append(row)
        above = ["each cell: the likeliest token, then rank and probability of the one that really follows (→)"]
        return Table("logit lens", columns, body, above=above, pages=False)

    def _one(self) -> Table:
        subject, following = self.subject, self._following(0)
        top = self.question.top or SHOWN
        columns = [Column("layer", right=True), Column("predicts behind " + named(subject, self.rows[0]))]
        columns += [Column("")] * (top - 1)
        if following is not None:
            columns.append(Column(f"{fit(subject.name(following), NAME)} follows"))
        body: list[list[Cell | str]] = []
        for depth in range(len(self.lens.ids)):
            row: list[Cell | str] = [Cell(_depth(depth), style="dim")]
            for k in range(top):
                p = float(self.lens.p[depth, 0, k])
                row.append(Cell(f"{fit(subject.name(int(self.lens.ids[depth, 0, k])), NAME)} {percent(p)}", heat=p))
            body.append([*row, self._actual(depth, 0)] if following is not None else row)
        return Table("logit lens", columns, body, pages=False)


def _depth(depth: int) -> str:
    return "embedding" if depth == 0 else str(depth - 1)
