"""--at: why this token? The row that was decoded when it was chosen."""

from __future__ import annotations

from typing import Any

from cli.question import Question
from cli.render import Cell, Column, Table, bar, fit, percent
from cli.subject import Subject
from cli.views.token import Reading
from cli.views.view import LABEL, View, chosen_token, named, number
from transformer.explain.predictions import log_probabilities

SHOWN = 5
BAR = 12


class AtView(View):
    """A token is chosen behind the one before it: that row is shown, with what else was likely. All of it was kept
    while decoding, so it takes no pass."""

    key = "at"
    caveat = "the row is the one that was decoded through the cache; chosen by the sampler among what was likely"
    in_pass = False

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        assert subject.decoded is not None
        self.token = chosen_token(subject, question)
        self.reading = Reading(subject, question, self.token)
        row = subject.cells[self.token][-1]
        subject.decoded.show(row, *subject.watch(self.reading.reads))
        ((_, logp),) = log_probabilities(subject.model, subject.decoded.ends[row][None])
        p, ids = logp[0].exp().topk(min(question.top or SHOWN, logp.shape[1]))
        self.candidates = list(zip(ids.tolist(), p.tolist(), strict=True))
        self.written = row + 1
        self.chosen = subject.ids[self.written]
        self.p = float(logp[0, self.chosen].exp())
        self.rank = int((logp[0] > logp[0, self.chosen]).sum()) + 1

    def data(self) -> dict[str, Any]:
        name = self.subject.surface
        return {
            "chosen": {"index": self.written, "id": self.chosen, "text": name(self.chosen), "p": number(self.p)},
            "rank": self.rank,
            "candidates": [{"id": id, "text": name(id), "p": number(p)} for id, p in self.candidates],
            "row": {"index": self.token, "layers": self.reading.data()},
        }

    def records(self) -> list[dict[str, Any]]:
        return self.reading.records()

    def tables(self, width: int) -> list[Table]:
        columns = [Column("candidate"), Column("p", right=True), Column("")]
        listed = self.candidates if self.rank <= len(self.candidates) else [*self.candidates, (self.chosen, self.p)]
        body: list[list[Cell | str]] = []
        for id, p in listed:
            mark = " ← chosen" if id == self.chosen else ""
            body.append([Cell(fit(self.subject.name(id), LABEL), style="bold"), percent(p), bar(p, 1.0, BAR) + mark])
        last = named(self.subject, self.token)
        title = f"why “{self.subject.name(self.chosen)}” ({self.written})? what was likely behind {last}"
        return [Table(title, columns, body), self.reading.table(width)]
