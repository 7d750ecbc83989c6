"""--token: where one token reads, layer by layer, and who reads it later."""

from __future__ import annotations

from typing import Any

from cli.question import Question
from cli.render import Cell, Column, Table, bar, fit, fitting, share
from cli.subject import Subject
from cli.views.view import BAR, LABEL, SIZES, Entries, View, chosen_token, named, number, sharp
from transformer.explain.overview import Sharp, strongest
from transformer.explain.reading import ReadBy, Reads

READERS = 10  # later tokens shown, strongest first, unless --top or --rows all asks for more


class Reading:
    """Where one token reads, layer by layer."""

    def __init__(self, subject: Subject, question: Question, token: int):
        self.subject, self.top, self.token = subject, question.top or 3, token
        self.reads = Reads(subject.model.config, len(subject.cells), token)

    def sharpest(self, layer: int) -> Sharp | None:
        """The head of a layer that reads another token most, sink, itself and predecessor set aside."""
        others = self.reads.weights[layer][:, 1 : self.token - 1]  # (H, candidates)
        if not others.numel() or not float(others.max()):
            return None
        head, column = divmod(int(others.argmax()), others.shape[1])
        return Sharp(layer, head, column + 1, float(others.max()))

    def mean(self, layer: int) -> list[float]:
        return self.reads.weights[layer].mean(0).tolist()

    def data(self) -> list[dict[str, Any]]:
        layers = []
        for layer in range(len(self.reads.weights)):
            found = self.sharpest(layer)
            weights = self.reads.weights[layer].tolist()
            layers.append(
                {
                    "layer": layer,
                    "mean": [number(w) for w in self.mean(layer)],
                    "heads": [[number(w) for w in row] for row in weights],
                    "sharpest": found and {"head": found.head, "index": found.token, "weight": number(found.weight)},
                }
            )
        return layers

    def records(self) -> list[dict[str, Any]]:
        return [
            {"layer": layer, "head": head, "key": j, "weight": number(w)}
            for layer, rows in enumerate(self.reads.weights.tolist())
            for head, row in enumerate(rows)
            for j, w in enumerate(row)
        ]

    def table(self, width: int) -> Table:
        return fitting(width, self._table, SIZES)

    def _table(self, size: int) -> Table:
        names, depth = self.subject.names, len(self.reads.weights)
        rows = [strongest(self.reads.weights[layer].mean(0), self.top) for layer in range(depth)]
        entries = Entries(names, rows, size, a_line=3)
        heads = self.reads.weights.shape[1]
        columns = [
            Column("layer", right=True),
            Column("sink", right=True),
            Column(f"reads (mean of {heads} heads)"),
            Column("sharpest head"),
        ]
        body: list[list[Cell | str]] = [
            [
                Cell(str(layer), style="dim"),
                share(self.mean(layer)[0]),
                entries.text(rows[layer]),
                sharp(names, self.sharpest(layer), size),
            ]
            for layer in range(depth)
        ]
        return Table(f"where {named(self.subject, self.token)} ({self.token}) reads", columns, body, pages=False)


class TokenView(View):
    key = "token"
    caveat = "each layer reads tokens as the layers below it have rewritten them, not the words themselves"

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        self.token = chosen_token(subject, question)
        self.reading = Reading(subject, question, self.token)
        self.read_by = ReadBy(subject.model.config, len(subject.cells), self.token)
        self.observers = subject.watch(self.reading.reads, self.read_by)

    def readers(self) -> list[int]:
        """Later tokens, the strongest reader first."""
        return sorted(self.read_by.rows, key=lambda i: -float(self.read_by.mean[i]))

    def data(self) -> dict[str, Any]:
        read_by = []
        for i in self.readers():
            most = self.read_by.sharpest(i)
            strongest_head = {"layer": most.layer, "head": most.head, "weight": number(most.weight)}
            read_by.append({"index": i, "weight": number(float(self.read_by.mean[i])), "sharpest": strongest_head})
        return {"index": self.token, "layers": self.reading.data(), "read_by": read_by}

    def records(self) -> list[dict[str, Any]]:
        return self.reading.records()

    def tables(self, width: int) -> list[Table]:
        reads = self.reading.table(width)
        return [reads, self._readers()] if len(self.read_by.rows) else [reads]

    def _readers(self) -> Table:
        names, readers = self.subject.names, self.readers()
        shown = readers if self.question.rows == "all" else readers[: self.question.top or READERS]
        full = max((float(self.read_by.mean[i]) for i in shown), default=1.0)
        columns = [Column("#", right=True), Column("token"), Column("mean", right=True), Column(""), Column("most by")]
        body: list[list[Cell | str]] = []
        for i in shown:
            most, weight = self.read_by.sharpest(i), float(self.read_by.mean[i])
            name = Cell(fit(names[i], LABEL), style="bold")
            head = f"{most.layer}.{most.head} {share(most.weight)}"
            body.append([Cell(str(i), style="dim"), name, share(weight), bar(weight, full, BAR), head])
        left_out = len(readers) - len(shown)
        below = [f"{left_out:,} more read it less; --rows all shows them"] if left_out else []
        return Table(f"who reads {named(self.subject, self.token)} later", columns, body, below=below, pages=False)
