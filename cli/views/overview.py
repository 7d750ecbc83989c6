"""The default view: one row a token, who reads whom, and what the model expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.question import Question, span
from cli.render import Cell, Column, Table, fit, fitting, percent, share
from cli.subject import Subject
from cli.views.view import LABEL, SIZES, Entries, View, number, sharp
from transformer.explain.overview import Entropy, Mean, Sharpest, strongest
from transformer.explain.predictions import Predictions, predictions

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 5  # in JSON, unless --top says how many


class Overview(View):
    key = "tokens"
    caveat = (
        "weights are raw attention averaged over layers and heads: where heads read, not why the model answered; "
        "--ablate auto tests that"
    )

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        n, config = len(subject.cells), subject.model.config
        self.rows = span(question.rows, n, "--rows")
        self.mean, self.sharpest = Mean(config, n, self.rows), Sharpest(n, self.rows)
        self.entropy = Entropy(config, n, self.rows) if question.verbose else None
        watching = [o for o in (self.mean, self.sharpest, self.entropy) if o is not None]
        self.observers = subject.watch(*watching)

    def finish(self, x: Tensor) -> None:
        self.expected: Predictions = predictions(self.subject.model, x, self.subject.ids, self.question.top or SHOWN)

    def reads(self, i: int, top: int) -> list[tuple[int, float]]:
        return strongest(self.mean.of(i), top)

    def bits(self, i: int) -> float | None:
        """The surprisal of a cell is that of its tokens together; the first token follows nothing."""
        cell = self.subject.cells[i]
        return sum(self.expected.surprisal[piece - 1] for piece in cell) if cell[0] else None

    def predictions(self, piece: int) -> list[tuple[int, float]]:
        """What was expected behind a token, likeliest first."""
        ids, p = self.expected.ids[piece], self.expected.p[piece]
        return list(zip(ids.tolist(), p.tolist(), strict=True))

    def data(self) -> list[dict[str, Any]]:
        return [self._token(i) for i in self.rows]

    def next(self) -> list[dict[str, Any]]:
        return self._listed(len(self.subject.ids) - 1)

    def _listed(self, piece: int) -> list[dict[str, Any]]:
        name = self.subject.surface
        return [{"id": id, "text": name(id), "p": number(p)} for id, p in self.predictions(piece)]

    def _token(self, i: int) -> dict[str, Any]:
        subject, cell = self.subject, self.subject.cells[i]
        found, bits = self.sharpest.of(i), self.bits(i)
        start, end = subject.span(cell)
        token: dict[str, Any] = {"index": i, "id": subject.ids[cell[0]], "text": subject.texts[i]}
        if len(cell) > 1:
            token["ids"] = subject.ids[cell[0] : cell[-1] + 1]
        token |= {
            "start": start,
            "end": end,
            "surprisal_bits": None if bits is None else number(bits),
            "predictions": self._listed(cell[0] - 1) if cell[0] else [],
            "sink": number(float(self.mean.of(i)[0])),
            "reads": [{"index": j, "weight": number(w)} for j, w in self.reads(i, self.question.top or SHOWN)],
            "sharpest": found
            and {"layer": found.layer, "head": found.head, "index": found.token, "weight": number(found.weight)},
        }
        if self.entropy is not None:
            token["entropy"] = number(float(self.entropy.spread[i]))
        if subject.prompt is not None:
            token["generated"] = cell[-1] >= subject.prompt
        return token

    def records(self) -> list[dict[str, Any]]:
        records = []
        for token in self.data():
            reads, found = token.pop("reads"), token.pop("sharpest") or {}
            expected = token.pop("predictions")[:1] or [{}]
            token.pop("ids", None)
            for place in range(self.question.top or SHOWN):
                read = reads[place] if place < len(reads) else {}
                token[f"read_{place + 1}"], token[f"weight_{place + 1}"] = read.get("index"), read.get("weight")
            token |= {f"sharpest_{key}": found.get(key) for key in ("layer", "head", "index", "weight")}
            token |= {"expected": expected[0].get("text"), "expected_p": expected[0].get("p")}
            records.append(token)
        return records

    def tables(self, width: int) -> list[Table]:
        return [fitting(width, self._table, SIZES)]

    def _table(self, size: int) -> Table:
        subject = self.subject
        heads = len(subject.model.config.layers) * subject.model.config.heads
        rows = [self.reads(i, self.question.top or 2) for i in self.rows]
        entries = Entries(subject.names, rows, size)
        columns = [
            Column("#", right=True, label=True),
            Column("token", label=True),
            Column("sink", right=True),
            Column(f"reads (mean of {heads} heads)"),
            *([Column("spread", right=True)] if self.entropy else []),
            Column("sharpest head"),
            Column("bits", right=True),
            Column("expected"),
        ]
        body = [self._row(i, entries.text(read), size) for i, read in zip(self.rows, rows, strict=True)]
        following = self.predictions(len(subject.ids) - 1)[: self.question.top or 5]
        below = "next: " + ", ".join(f"{subject.name(id)} {percent(p)}" for id, p in following)
        return Table("", columns, body, below=[below], hint="--rows a:b or --rows all", sections=self._sections())

    def _sections(self) -> frozenset[int]:
        """A line between what was given and what was generated."""
        given = self.subject.prompt
        if given is None:
            return frozenset()
        return frozenset(row for row, i in enumerate(self.rows) if self.subject.cells[i][-1] == given - 1)

    def _row(self, i: int, reads: str, size: int) -> list[Cell | str]:
        subject, cell, bits = self.subject, self.subject.cells[i], self.bits(i)
        generated = subject.prompt is not None and cell[-1] >= subject.prompt
        expected = self.predictions(cell[0] - 1)[: self.question.top or 1] if cell[0] else []
        return [
            Cell(str(i), style="dim"),
            Cell(fit(subject.names[i], LABEL), style="bold cyan" if generated else "bold"),
            share(float(self.mean.of(i)[0])),
            reads,
            *([share(float(self.entropy.spread[i]))] if self.entropy else []),
            sharp(subject.names, self.sharpest.of(i), size),
            "" if bits is None else f"{bits:.1f}",
            "\n".join(f"{fit(subject.name(id), max(8, size))} {percent(p)}" for id, p in expected),
        ]
