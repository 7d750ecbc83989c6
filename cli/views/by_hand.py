"""--by-hand: one row of one head with every number, to be checked with a pocket calculator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cli.question import Question, choose
from cli.render import Cell, Column, Table, bar, fit
from cli.subject import Subject
from cli.views.view import BAR, LABEL, View, chosen_token, named, number
from transformer.errors import InputError
from transformer.explain.by_hand import ByHand, by_hand

if TYPE_CHECKING:
    from torch import Tensor

DIMENSIONS = 3  # of the values and the output, shown in the table; JSON has them all


class ByHandView(View):
    key = "by_hand"
    caveat = "one head of one layer; q, k and v are made from what the layers below wrote, positions included"

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        config = subject.model.config
        if question.token is None or question.layer is None or question.head is None:
            raise InputError("--by-hand needs one --token, one --layer and one --head")
        layers = choose(question.layer, len(config.layers), "--layer")
        heads = choose(question.head, config.heads, "--head")
        if len(layers) != 1 or len(heads) != 1 or layers[0] == "mean" or heads[0] == "mean":
            raise InputError(f"--by-hand takes one layer and one head, got {question.layer} and {question.head}")
        if len(subject.cells) < len(subject.ids):
            raise InputError("--by-hand is about tokens, not --words")
        self.layer, self.head = layers[0], heads[0]
        self.token = chosen_token(subject, question)

    def finish(self, x: Tensor) -> None:
        import torch

        with torch.inference_mode():
            ids = torch.tensor([self.subject.ids], device=x.device)
            self.found: ByHand = by_hand(self.subject.model, ids, self.layer, self.head, self.token)

    def data(self) -> dict[str, Any]:
        f = self.found
        where = {"layer": self.layer, "head": self.head, "index": self.token}
        numbers = {"scale": f.scale, "softcap": f.softcap, "max_error": f.error}
        vectors = {"q": f.q, "k": f.k, "v": f.v, "output": f.output}
        columns = {
            "dot": f.dot,
            "scaled": f.scaled,
            "capped": f.capped,
            "bias": f.bias,
            "score": f.score,
            "exponential": f.exponential,
            "weight": f.weight,
            "contribution": f.contribution,
        }
        return {**where, **numbers, **{name: _listed(t) for name, t in (columns | vectors).items()}}

    def records(self) -> list[dict[str, Any]]:
        data = self.data()
        names = ("dot", "scaled", "capped", "bias", "score", "exponential", "weight", "contribution")
        return [
            {"key": j, "text": self.subject.texts[j], **{name: data[name] and data[name][j] for name in names}}
            for j in range(self.token + 1)
        ]

    def tables(self, width: int) -> list[Table]:
        f = self.found
        columns = [Column("#", right=True), Column("token"), Column("q·k", right=True), Column("scaled", right=True)]
        columns += [Column("capped", right=True)] if f.softcap else []
        columns += [Column("bias", right=True)] if f.bias is not None else []
        columns += [Column("e^(s−max)", right=True), Column("weight", right=True), Column("")]
        columns += [Column(f"w·v[{d}]", right=True) for d in range(DIMENSIONS)]
        columns += [Column("‖w·v·W‖", right=True)]
        body = [self._row(j) for j in range(self.token + 1)]
        title = f"layer {self.layer}, head {self.head}: how {named(self.subject, self.token)} ({self.token}) reads"
        last = len(body) - 1
        return [
            Table(
                title,
                columns,
                [*body, self._sums()],
                self._formula(),
                self._check(),
                True,
                "--rows all",
                frozenset([last]),
            )
        ]

    def _row(self, j: int) -> list[Cell | str]:
        f = self.found
        weight, masked = float(f.weight[j]), not math.isfinite(float(f.score[j]))
        row: list[Cell | str] = [Cell(str(j), style="dim"), Cell(fit(self.subject.names[j], LABEL), style="bold")]
        row += [f"{float(f.dot[j]):.3f}", f"{float(f.scaled[j]):.3f}"]
        row += [f"{float(f.capped[j]):.3f}"] if f.softcap else []
        row += [f"{float(f.bias[j]):.3f}"] if f.bias is not None else []
        row += ["masked" if masked else f"{float(f.exponential[j]):.4f}", f"{weight:.4f}", bar(weight, 1.0, BAR)]
        row += [f"{weight * float(f.v[j, d]):.4f}" for d in range(DIMENSIONS)]
        return [*row, f"{float(f.contribution[j]):.3f}"]

    def _sums(self) -> list[Cell | str]:
        f = self.found
        row: list[Cell | str] = ["", Cell("sum", style="bold"), "", ""]
        row += [""] * ((f.softcap is not None) + (f.bias is not None))
        row += [f"{float(f.exponential.sum()):.4f}", f"{float(f.weight.sum()):.4f}", ""]
        return [*row, *(f"{float(f.output[d]):.4f}" for d in range(DIMENSIONS)), ""]

    def _formula(self) -> list[str]:
        f, D = self.found, len(self.found.q)
        root = math.isclose(f.scale, D**-0.5, rel_tol=1e-6)
        steps = [f"scaled = q·k ÷ √{D} = q·k × {f.scale:.6g}" if root else f"scaled = q·k × {f.scale:.6g}"]
        s = "scaled"
        if f.softcap:
            steps.append(f"capped = {f.softcap:g} · tanh(scaled ÷ {f.softcap:g})")
            s = "capped"
        if f.bias is not None:
            steps.append("bias = slope × place of the token read, the same as −slope × distance once softmaxed")
            s += " + bias"
        window = self.subject.model.config.layers[self.layer].window
        seen = f"the tokens up to {self.token}" if window is None else f"the last {window} tokens up to {self.token}"
        steps.append(f"s = {s}; mask: only {seen}; max = {float(f.score.max()):.3f}")
        steps.append(f"weight = e^(s−max) ÷ {float(f.exponential.sum()):.4f};  output = Σ weight · v, {D} numbers")
        return steps

    def _check(self) -> list[str]:
        f = self.found
        return [
            f"‖output‖ = {float(f.output.norm()):.4f}; the model's own output differs by at most {f.error:.1e}",
            "‖w·v·W‖ is the length of what the token adds to the stream through the head's part of the projection",
        ]


def _listed(tensor: Tensor | None) -> Any:
    if tensor is None:
        return None
    values = tensor.tolist()
    return [[number(x) for x in row] for row in values] if tensor.ndim == 2 else [_finite(x) for x in values]


def _finite(value: float) -> float | None:
    """-inf, a masked score, is null in JSON."""
    return number(value) if math.isfinite(value) else None
