"""--diff and --vs: two texts, or two models on one text; what is read and expected differently."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cli.question import Question
from cli.render import Cell, Column, Table, fit, percent, share, signed
from cli.subject import Subject, label
from cli.views.view import LABEL, View, number
from transformer.explain.difference import Change, Pair, align, changes, first_difference
from transformer.explain.matrix import Matrix, Which
from transformer.explain.memory import estimate
from transformer.explain.predictions import Predictions, log_probabilities, predictions
from transformer.recording import Observer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SHOWN = 10


class DifferenceView(View):
    """`subject` is one side, `other` the second; keys of JSON and columns of tables come in that order."""

    caveat = (
        "what goes to the sink, the first token, is set aside; differences of single heads are the largest of very "
        "many: some are large by chance"
    )

    def __init__(self, subject: Subject, question: Question, other: Subject):
        super().__init__(subject, question)
        self.other = other
        self.models_differ = subject.loaded is not other.loaded
        self.key = "versus" if self.models_differ else "difference"
        a, b = subject.texts, other.texts
        self.parted = None if self.models_differ else first_difference(a, b)
        self.pairs = align(a, b)
        # Before the first difference a causal model cannot differ: those rows are only checked, in the mean.
        start = len(a) if not self.models_differ and self.parted is None else self.parted or 0
        self.queries = [pair for pair in self.pairs if pair.a >= start]
        self.checked = [pair for pair in self.pairs if pair.a < start]
        self.keys = [pair for pair in self.pairs if pair.a and pair.b]  # the sink is set aside
        shapes = [(len(s.model.config.layers), s.model.config.heads) for s in (subject, other)]
        self.heads_compare = shapes[0] == shapes[1]
        self.ours, self.theirs = (self._observers(s, side) for s, side in ((subject, "a"), (other, "b")))
        self.observers = subject.watch(*self.ours)

    def _observers(self, subject: Subject, side: str) -> tuple[Matrix, Matrix]:
        """Every head in the rows that may differ, the mean in those that may not."""
        config, n = subject.model.config, len(subject.cells)
        layers: list[Which] = list(range(len(config.layers))) if self.heads_compare else ["mean"]
        heads: list[Which] = list(range(config.heads)) if self.heads_compare else ["mean"]
        rows, checked = ([getattr(pair, side) for pair in pairs] for pairs in (self.queries, self.checked))
        return Matrix(config, n, layers, heads, rows), Matrix(config, n, ["mean"], ["mean"], checked)

    def needs(self) -> int:
        config = self.other.model.config
        both: list[Observer] = [*self.ours, *self.theirs]
        return estimate(config, max(len(self.subject.ids), len(self.other.ids)), both)

    def finish(self, x: Tensor) -> None:
        import torch

        y = self.other.run(self.other.watch(*self.theirs))
        with torch.inference_mode():
            self.expected = [self._predictions(self.subject, x), self._predictions(self.other, y)]
            self.next = self._next(x, y)
        keys = self.keys
        a, b = (self._weights(side, s) for side, s in ((self.ours[0], "a"), (self.theirs[0], "b")))
        top = self.question.top or SHOWN
        self.mean = changes(a, b, self.queries, keys, top, mean=True) if self.queries else []
        self.heads = changes(a, b, self.queries, keys, top) if self.queries and self.heads_compare else []
        self.unmoved = self._unmoved()

    def _predictions(self, subject: Subject, x: Tensor) -> Predictions:
        return predictions(subject.model, x, subject.ids, 1)

    def _weights(self, matrix: Matrix, side: str) -> torch.Tensor:
        """(L, H, queries, keys) of aligned tokens; one layer and head if only the mean compares."""
        import torch

        if not self.queries:
            return torch.zeros(1, 1, 0, 0)
        columns = [getattr(pair, side) for pair in self.keys]
        stacked = torch.stack([matrix.weights[key][:, columns] for key in matrix.chosen]).cpu()
        if not self.heads_compare:
            return stacked[None]
        return stacked.unflatten(0, (len(self.subject.model.config.layers), -1))

    def _unmoved(self) -> float | None:
        """The largest difference in the rows that cannot differ."""
        if not self.checked:
            return None
        size = len(self.checked)
        a, b = (side[1].weights["mean", "mean"][:, :size].cpu() for side in (self.ours, self.theirs))
        return float((a - b).abs().max())

    def _next(self, x: Tensor, y: Tensor) -> list[tuple[str, float, float]]:
        """What comes next on either side, by how much its probability changes."""
        sides = []
        for subject, stream in ((self.subject, x), (self.other, y)):
            ((_, logp),) = log_probabilities(subject.model, stream[-1:])
            p, ids = logp[0].exp().topk(min(64, logp.shape[1]))
            sides.append({subject.surface(int(i)): float(value) for i, value in zip(ids, p, strict=True)})
        names = dict.fromkeys([*sides[0], *sides[1]])
        rows = [(name, sides[0].get(name, 0.0), sides[1].get(name, 0.0)) for name in names]
        return sorted(rows, key=lambda row: -abs(row[2] - row[1]))[: self.question.top or SHOWN]

    def _bits(self, side: int, i: int) -> float | None:
        cell = (self.subject, self.other)[side].cells[i]
        return sum(self.expected[side].surprisal[piece - 1] for piece in cell) if cell[0] else None

    def _tokens(self) -> list[tuple[Pair, float, float]]:
        """Aligned tokens with the surprisal of either side, the largest change first."""
        rows = [(pair, self._bits(0, pair.a), self._bits(1, pair.b)) for pair in self.queries]
        known = [(pair, a, b) for pair, a, b in rows if a is not None and b is not None]
        return sorted(known, key=lambda row: -abs(row[2] - row[1]))

    def data(self) -> dict[str, Any]:
        return {
            "other": {"model": self.other.loaded.name, "text": self.other.text},
            "first_difference": self.parted,
            "before_it_at_most": None if self.unmoved is None else number(self.unmoved),
            "tokens": [
                {
                    "index": pair.a,
                    "other_index": pair.b,
                    "surprisal_bits": number(a),
                    "other_surprisal_bits": number(b),
                    "difference": number(b - a),
                }
                for pair, a, b in self._tokens()
            ],
            "reads": [_change(change) for change in self.mean],
            "heads": [_change(change) for change in self.heads],
            "next": [{"text": name, "p": number(a), "other_p": number(b)} for name, a, b in self.next],
        }

    def records(self) -> list[dict[str, Any]]:
        return [_change(change) for change in (*self.mean, *self.heads)]

    def tables(self, width: int) -> list[Table]:
        tables = [self._surprisal()]
        if self.mean:
            tables.append(self._changes("reads, mean of all heads", self.mean))
        if self.heads:
            tables.append(self._changes("reads of single heads", self.heads))
        columns = [Column("next"), Column("a", right=True), Column("b", right=True), Column("change", right=True)]
        body: list[list[Cell | str]] = [
            [Cell(fit(label(name), LABEL), style="bold"), percent(a), percent(b), signed(100 * (b - a), 1)]
            for name, a, b in self.next
        ]
        return [*tables, Table("what comes next, in percent", columns, body)]

    def _above(self) -> list[str]:
        if self.models_differ:
            return [f"a: {self.subject.loaded.name}", f"b: {self.other.loaded.name}"]
        lines = [f"a: {self.subject.text}", f"b: {self.other.text}"]
        if self.parted is None:
            return [*lines, "the texts are the same"]
        a, b = (s.names[self.parted] if self.parted < len(s.names) else "the end" for s in (self.subject, self.other))
        lines.append(f"they part at token {self.parted}: {a} / {b}")
        if self.unmoved is not None:
            most = f"{self.unmoved:.1e}" if self.unmoved else "0"
            lines.append(f"rows before it are equal (largest difference {most}): a causal model cannot see the future")
        return lines

    def _surprisal(self) -> Table:
        columns = [Column("#", right=True), Column("token"), *(Column(x, right=True) for x in ("a", "b", "change"))]
        rows = self._tokens()[: self.question.top or SHOWN]
        body: list[list[Cell | str]] = [
            [Cell(str(pair.a), style="dim"), self._name(pair), f"{a:.1f}", f"{b:.1f}", signed(b - a)]
            for pair, a, b in rows
        ]
        title = "surprisal in bits, largest change first"
        return Table(title, columns, body, above=self._above())

    def _changes(self, title: str, found: list[Change]) -> Table:
        columns = [Column("head")] if found[0].head is not None else []
        columns += [Column("#", right=True), Column("token"), Column("reads"), Column("")]
        columns += [Column(name, right=True) for name in ("a", "b", "change")]
        body: list[list[Cell | str]] = []
        for change in found:
            head: list[Cell | str] = [f"{change.layer}.{change.head}"] if change.head is not None else []
            where: list[Cell | str] = [Cell(str(change.query.a), style="dim"), self._name(change.query)]
            read: list[Cell | str] = [
                f"→ {self._name(change.key).text}",
                Cell(str(change.key.a), style="dim"),
            ]
            body.append([*head, *where, *read, share(change.a), share(change.b), signed(change.difference)])
        return Table(f"{title}, largest change first", columns, body)

    def _name(self, pair: Pair) -> Cell:
        a, b = self.subject.labels[pair.a], self.other.labels[pair.b]
        return Cell(fit(self.subject.names[pair.a] if a == b else f"{a}/{b}", LABEL), style="bold")


def _change(change: Change) -> dict[str, Any]:
    return {
        "layer": "mean" if change.layer is None else change.layer,
        "head": "mean" if change.head is None else change.head,
        "query": change.query.a,
        "other_query": change.query.b,
        "key": change.key.a,
        "other_key": change.key.b,
        "weight": number(change.a),
        "other_weight": number(change.b),
        "difference": number(change.difference),
    }


def in_common_cells(a: Subject, b: Subject) -> tuple[Subject, Subject]:
    """Both sides cut where both tokenizations have a boundary, so that their cells can be compared."""
    if a.ids == b.ids or a.texts == b.texts:
        return a, b
    ends = {end for _, end in a.spans} & {end for _, end in b.spans}
    return replace(a, cells=_cut(a.spans, ends)), replace(b, cells=_cut(b.spans, ends))


def _cut(spans: list[tuple[int, int]], ends: set[int]) -> list[range]:
    cells, start = [], 0
    for piece, (_, end) in enumerate(spans):
        last_of_its_character = piece + 1 == len(spans) or spans[piece + 1][1] != end or end == 0
        if end in ends and last_of_its_character:
            cells.append(range(start, piece + 1))
            start = piece + 1
    return [*cells, range(start, len(spans))] if start < len(spans) else cells
