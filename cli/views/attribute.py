"""--attribute: which parts of the model, and which input tokens, a logit comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.question import Question
from cli.render import Cell, Column, Table, bar, fit, signed
from cli.subject import Subject
from cli.views.view import LABEL, View, chosen_token, named, number
from transformer.errors import InputError
from transformer.explain.attribution import Attribution, Part, Written, attribute
from transformer.explain.integrated import Integrated, integrated_gradients, memory
from transformer.explain.target import Target

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 12
BLANK = "the first token as it is, then the mean of the vocabulary in every place"
BAR = 12


class AttributeView(View):
    key = "attribution"
    caveat = (
        "direct attribution counts what each part wrote towards the logit itself, not what it did by way of later "
        "parts; it is correlational: --ablate tests it. Integrated gradients depend on what counts as blank"
    )

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        self.row = subject.cells[chosen_token(subject, question)][-1]
        self.written = Written(subject.model, self.row)
        self.observers = [self.written]
        self.target = None if question.target is None else vocabulary_id(subject, question.target, "--target")
        if question.at is not None and self.target is None:
            self.target = subject.ids[self.row + 1]  # what was chosen there
        self.foil = None if question.foil is None else vocabulary_id(subject, question.foil, "--foil")

    def needs(self) -> int:
        return memory(self.subject.model.config, self.row + 1, self.subject.model.dtype.itemsize)

    def finish(self, x: Tensor) -> None:
        import torch

        model = self.subject.model
        with torch.inference_mode():
            token = int(model.logits(x[None, self.row : self.row + 1]).argmax()) if self.target is None else self.target
            self.about = Target(self.row, token, self.foil)
            self.found: Attribution = attribute(model, self.written, x, self.about)
        self.by_token: Integrated = integrated_gradients(model, self.subject.ids[: self.row + 1], self.about)

    def _shares(self) -> list[float]:
        """Of the input, by cell."""
        shares = self.by_token.shares
        return [sum(shares[p] for p in cell if p <= self.row) for cell in self.subject.cells if cell[0] <= self.row]

    def data(self) -> dict[str, Any]:
        name, about, found, tokens = self.subject.surface, self.about, self.found, self.by_token
        return {
            "row": about.row,
            "target": {"id": about.token, "text": name(about.token)},
            "foil": None if about.foil is None else {"id": about.foil, "text": name(about.foil)},
            "logit": number(found.logit),
            "parts": [{**p._asdict(), "share": number(p.share)} for p in found.parts],
            "gap": number(found.gap),
            "integrated_gradients": {
                "blank": BLANK,
                "blank_logit": number(tokens.blank_logit),
                "steps": tokens.steps,
                "shares": [number(share) for share in self._shares()],
                "completeness_error": number(tokens.error),
            },
        }

    def records(self) -> list[dict[str, Any]]:
        return [{**part._asdict(), "share": number(part.share)} for part in self.found.parts]

    def tables(self, width: int) -> list[Table]:
        return [self._parts(), self._tokens()]

    def _says(self) -> str:
        name, about = self.subject.name, self.about
        what = f"the logit of “{name(about.token)}”"
        if about.foil is not None:
            what += f" minus that of “{name(about.foil)}”"
        return f"{what} behind {named(self.subject, self._cell())}"

    def _cell(self) -> int:
        return next(i for i, cell in enumerate(self.subject.cells) if self.row in cell)

    def _parts(self) -> Table:
        found = self.found
        ranked = sorted(found.parts, key=lambda part: -abs(part.share))
        shown, rest = ranked[: self.question.top or SHOWN], ranked[self.question.top or SHOWN :]
        full = max(abs(part.share) for part in ranked)
        body: list[list[Cell | str]] = [[part_name(p), signed(p.share), _bar(p.share, full)] for p in shown]
        if rest:
            body.append([f"{len(rest)} other parts", signed(sum(p.share for p in rest)), ""])
        last = len(body) - 1
        body.append([Cell("sum", style="bold"), signed(sum(p.share for p in found.parts)), ""])
        body.append([Cell("logit", style="bold"), signed(found.logit), f"gap {found.gap:.1e}"])
        columns = [Column("written by"), Column("share", right=True), Column("")]
        title = f"{self._says()}, by part of the model"
        return Table(title, columns, body, pages=False, sections=frozenset([last]))

    def _tokens(self) -> Table:
        tokens, shares = self.by_token, self._shares()
        full = max(map(abs, shares)) or 1.0
        columns = [Column("#", right=True), Column("token"), Column("share", right=True), Column("")]
        body: list[list[Cell | str]] = [
            [
                Cell(str(i), style="dim"),
                Cell(fit(self.subject.names[i], LABEL), style="bold"),
                signed(s),
                _bar(s, full),
            ]
            for i, s in enumerate(shares)
        ]
        last = len(body) - 1
        change = tokens.logit - tokens.blank_logit
        body.append(["", Cell("sum", style="bold"), signed(sum(shares)), ""])
        body.append(["", Cell("change", style="bold"), signed(change), f"completeness error {tokens.error:.1e}"])
        title = f"{self._says()}, by input token"
        above = [
            f"integrated gradients, {tokens.steps} steps from {signed(tokens.blank_logit)}, the logit of a blank text:",
            BLANK,
        ]
        return Table(title, columns, body, above=above, sections=frozenset([last]))


def part_name(part: Part) -> str:
    if part.kind == "head":
        return f"head {part.layer}.{part.head}"
    return part.kind if part.layer is None else f"{part.kind} {part.layer}"


def _bar(value: float, full: float) -> str:
    return bar(abs(value), full, BAR)


def vocabulary_id(subject: Subject, text: str, option: str) -> int:
    """The one token that a text is; in the middle of a sentence a word has its space before it."""
    tokenizer = subject.loaded.tokenizer
    for spelling in (text, f" {text}") if text.startswith(" ") else (f" {text}", text):
        ids = tokenizer.encode_plain(spelling)
        if len(ids) == 1:
            return ids[0]
    pieces = " ".join(subject.name(id) for id in tokenizer.encode_plain(text))
    raise InputError(f"{option} {text!r}: needs one token, this is {len(tokenizer.encode_plain(text))}: {pieces}")
