"""--weights: several answers to which tokens mattered to this one, side by side, and whether they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.question import Question, methods
from cli.render import Cell, Column, Table, bar, fit, pad, share, signed
from cli.subject import Subject
from cli.views.view import BAR, LABEL, View, chosen_token, named, number
from transformer.explain.comparison import DISAGREE, agreement
from transformer.explain.gradient import gradient_times_input
from transformer.explain.integrated import memory
from transformer.explain.norms import Norms
from transformer.explain.reading import Reads
from transformer.explain.rollout import Rollout
from transformer.explain.target import Target
from transformer.explain.zeroing import Zeroing

if TYPE_CHECKING:
    from torch import Tensor

    from transformer.recording import Observer

MEANING = {
    "raw": "attention, mean of all heads",
    "norm": "length of what is read, not only how much of it; mean of the layers' shares",
    "rollout": "attention followed down through the layers, half from the stream; × what even reading gives",
    "zeroing": "how far the vector turns when the token's value is taken away; mean of the layers' shares",
    "gradient": "gradient × input of the likeliest next token's logit, as shares of all sizes; signed",
}


class WeightsView(View):
    key = "weights"
    caveat = "these methods ask different questions; where they disagree, none of them is the explanation"

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        self.methods = methods(question.weights or "all")
        self.token = chosen_token(subject, question)
        self.piece = subject.cells[self.token][-1]
        model, n = subject.model, self.piece + 1
        observers: dict[str, Observer] = {
            "raw": Reads(model.config, n, self.piece),
            "norm": Norms(model, self.piece),
            "rollout": Rollout(model.config, n),
            "zeroing": Zeroing(model, self.piece),
        }
        self.watching = {name: observers[name] for name in self.methods if name in observers}
        self.observers = list(self.watching.values())

    def needs(self) -> int:
        config, item = self.subject.model.config, self.subject.model.dtype.itemsize
        return memory(config, self.piece + 1, item) if "gradient" in self.methods else 0

    def finish(self, x: Tensor) -> None:
        import torch

        shares: dict[str, list[float]] = {}
        for name, observer in self.watching.items():
            match observer:
                case Reads():
                    shares[name] = observer.weights.mean((0, 1)).tolist()
                case Norms():
                    shares[name] = observer.shares().tolist()
                case Rollout():
                    shares[name] = observer.rolled[self.piece].tolist()
                    shares["even"] = observer.even[self.piece].tolist()
                case Zeroing():
                    shares[name] = observer.shares().tolist()
        if "gradient" in self.methods:
            model = self.subject.model
            with torch.inference_mode():
                likeliest = int(model.logits(x[None, self.piece : self.piece + 1]).argmax())
            slopes = gradient_times_input(model, self.subject.ids, Target(self.piece, likeliest))
            total = sum(map(abs, slopes)) or 1.0
            shares["gradient"] = [slope / total for slope in slopes]
        self.shares = {name: self._by_cell(values) for name, values in shares.items()}
        self.agreement = agreement({name: self.shares[name] for name in self.methods})

    def _by_cell(self, values: list[float]) -> list[float]:
        return [sum(values[p] for p in cell if p <= self.piece) for cell in self.subject.cells[: self.token + 1]]

    def data(self) -> dict[str, Any]:
        return {
            "index": self.token,
            "methods": {name: [number(s) for s in self.shares[name]] for name in self.shares},
            "agreement": [
                {"methods": list(pair), "spearman": None if rho is None else number(rho)}
                for pair, rho in self.agreement.items()
            ],
        }

    def records(self) -> list[dict[str, Any]]:
        return [
            {"key": j, "text": self.subject.texts[j], **{name: number(self.shares[name][j]) for name in self.shares}}
            for j in range(self.token + 1)
        ]

    def tables(self, width: int) -> list[Table]:
        columns = [Column("#", right=True), Column("token"), *(Column(name) for name in self.methods)]
        body = [self._row(j) for j in range(self.token + 1)]
        title = f"what mattered to {named(self.subject, self.token)} ({self.token}), by {len(self.methods)} methods"
        above = [f"{name}: {MEANING[name]}" for name in self.methods]
        table = Table(title, columns, body, above=above)
        return [table, self._agreement()] if self.agreement else [table]

    def _row(self, j: int) -> list[Cell | str]:
        row: list[Cell | str] = [Cell(str(j), style="dim"), Cell(fit(self.subject.names[j], LABEL), style="bold")]
        for name in self.methods:
            value, full = self.shares[name][j], max(map(abs, self.shares[name])) or 1.0
            shown = f"{signed(value) if name == 'gradient' else share(value):>5} {bar(abs(value), full, BAR)}"
            if name == "rollout":  # under a causal mask the first token gains with every layer by arithmetic alone
                shown = f"{pad(shown, BAR + 6)} ×{value / self.shares['even'][j]:.2f}"
            row.append(shown.rstrip())
        return row

    def _agreement(self) -> Table:
        """Every pair of methods: a triangle."""
        columns = [Column(""), *(Column(name, right=True) for name in self.methods[:-1])]
        body: list[list[Cell | str]] = []
        for row, b in enumerate(self.methods[1:], start=1):
            known = [self.agreement[a, b] for a in self.methods[:row]]
            cells = ["n/a" if rho is None else signed(rho) for rho in known]
            body.append([b, *cells, *[""] * (len(self.methods) - 1 - row)])
        return Table("rank agreement of the methods (Spearman's ρ)", columns, body, below=[self._verdict()])

    def _verdict(self) -> str:
        known = {pair: rho for pair, rho in self.agreement.items() if rho is not None}
        if not known:
            return "too few tokens for a rank agreement"
        apart = {pair: rho for pair, rho in known.items() if rho < DISAGREE}
        if not apart:
            return f"the methods agree on the order (all ρ ≥ {DISAGREE:.2f})"
        (a, b), rho = min(apart.items(), key=lambda item: item[1])
        count = f"{len(apart)} of {len(known)} pairs of" if len(known) > 1 else "the two"
        return f"{count} methods disagree, {a} and {b} most (ρ = {signed(rho)}): do not trust one alone"
