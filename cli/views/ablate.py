"""--ablate: take heads away and see which tokens become less likely, beside taking away just any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cli.question import Question, heads
from cli.render import Cell, Column, Table, fit, signed
from cli.subject import Subject
from cli.terminal import progress
from cli.views.view import LABEL, View, number
from transformer.explain.ablation import Head, Outcome, outcome, random_heads
from transformer.explain.attribution import Written, attribute
from transformer.explain.overview import Sharpest
from transformer.explain.target import Target

if TYPE_CHECKING:
    from torch import Tensor

DRAWS = 5  # random controls
CHOSEN = 2  # heads that auto takes of each kind
BITS = 1.4426950408889634  # of a nat


class Trial(NamedTuple):
    name: str
    why: str
    heads: tuple[Head, ...]
    changes: list[float]  # of log2 p: every token from the second on, then the next one
    control: list[list[float]]  # the same for other heads, as many, drawn at random


class AblateView(View):
    key = "ablation"
    caveat = (
        "an ablated model is off its usual path: a change shows that a head is used here, not what for; "
        "no change may mean that others step in"
    )

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        config, asked = subject.model.config, question.ablate or "auto"
        self.chosen: dict[Head, str] = {}
        last = len(subject.ids) - 1
        self.sharpest, self.written = Sharpest(len(subject.cells)), Written(subject.model, last)
        if asked == "auto":
            self.observers = [*subject.watch(self.sharpest), self.written]
        else:
            self.chosen = dict.fromkeys(heads(asked, len(config.layers), config.heads), "asked for")

    def finish(self, x: Tensor) -> None:
        import torch

        model = self.subject.model
        with torch.inference_mode():
            self.next = int(model.logits(x[None, -1:]).argmax())
            if not self.chosen:
                self._choose(x)
            sets = [(head,) for head in self.chosen] + ([tuple(self.chosen)] if len(self.chosen) > 1 else [])
            self.passes = 0
            self.before = self._outcome(())
            controls = {len(some): self._controls(some) for some in sets}
            self.trials = [self._trial(some, controls[len(some)]) for some in sets]
        progress("")

    def _choose(self, x: Tensor) -> None:
        """The sharpest heads of the default view, and those that wrote most towards the next token."""
        model, names = self.subject.model, self.subject.names
        found = [(i, s) for i in range(len(names)) if (s := self.sharpest.of(i)) is not None]
        for i, s in sorted(found, key=lambda item: -item[1].weight):
            if len(self.chosen) < CHOSEN:
                self.chosen.setdefault((s.layer, s.head), f"sharpest: {names[i]} → {names[s.token]} {s.weight:.2f}")
        parts = attribute(model, self.written, x, Target(len(self.subject.ids) - 1, self.next)).parts
        writers = sorted((p for p in parts if p.kind == "head"), key=lambda p: -abs(p.share))
        for part in writers[:CHOSEN]:
            assert part.layer is not None and part.head is not None
            self.chosen.setdefault((part.layer, part.head), f"wrote {signed(part.share)} of the next token's logit")

    def _outcome(self, some: tuple[Head, ...]) -> Outcome:
        self.passes += 1
        progress(f"ablating: pass {self.passes}")
        return outcome(self.subject.model, self.subject.ids, self.next, some, self.question.ablate_by)

    def _changes(self, some: tuple[Head, ...]) -> list[float]:
        after = self._outcome(some)
        tokens = (after.tokens - self.before.tokens).tolist()
        return [BITS * change for change in (*tokens, after.next - self.before.next)]

    def _controls(self, some: tuple[Head, ...]) -> list[list[float]]:
        """Heads other than any that was chosen, as many as are taken away."""
        config = self.subject.model.config
        others = random_heads(config, list(self.chosen), DRAWS, self.question.seed)
        return [self._changes(tuple(draw[: len(some)])) for draw in others if len(draw) >= len(some)]

    def _trial(self, some: tuple[Head, ...], control: list[list[float]]) -> Trial:
        name = "all" if len(some) > 1 else f"{some[0][0]}.{some[0][1]}"
        why = "together" if len(some) > 1 else self.chosen[some[0]]
        return Trial(name, why, some, self._changes(some), control)

    def _rows(self) -> list[tuple[str, str, list[int]]]:
        """Index, label and places in `changes` of every cell that follows something, then of the next token."""
        rows = [
            (str(i), self.subject.names[i], [piece - 1 for piece in cell])
            for i, cell in enumerate(self.subject.cells)
            if cell[0]
        ]
        return [*rows, ("", self.subject.name(self.next), [len(self.subject.ids) - 1])]

    def data(self) -> dict[str, Any]:
        trials = [
            {
                "heads": [{"layer": layer, "head": head} for layer, head in t.heads],
                "why": t.why,
                "delta_log2_p": [None, *(number(c) for c in t.changes[:-1])],
                "next_delta_log2_p": number(t.changes[-1]),
                "control_delta_log2_p": [[None, *(number(c) for c in draw[:-1])] for draw in t.control],
                "control_next_delta_log2_p": [number(draw[-1]) for draw in t.control],
            }
            for t in self.trials
        ]
        following = {"id": self.next, "text": self.subject.surface(self.next)}
        return {"by": self.question.ablate_by, "seed": self.question.seed, "next": following, "trials": trials}

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "text": label,
                "heads": t.name,
                "delta_log2_p": number(sum(t.changes[p] for p in places)),
                "control_mean": number(sum(sum(draw[p] for p in places) for draw in t.control) / len(t.control))
                if t.control
                else None,
            }
            for t in self.trials
            for index, label, places in self._rows()
        ]

    def tables(self, width: int) -> list[Table]:
        sizes = list(dict.fromkeys(len(t.heads) for t in self.trials if t.control))
        columns = [
            Column("#", right=True, label=True),
            Column("token", label=True),
            Column("bits", right=True, label=True),
        ]
        columns += [Column(f"−{t.name}", right=True) for t in self.trials]
        columns += [Column(f"−{size} random", right=True) for size in sizes]
        rows = self._rows()
        body = [self._row(*row, sizes) for row in rows]
        everything = list(range(len(self.subject.ids) - 1))
        mean = [self._cells(everything, sizes, len(everything) or 1)]
        summary: list[Cell | str] = ["", Cell("mean", style="bold"), "", *mean[0]]
        above = [f"−{t.name}: {t.why}" for t in self.trials]
        how = "nothing" if self.question.ablate_by == "zero" else "the mean of what it has read so far"
        above.append(f"an ablated head reads {how}; random: mean of {DRAWS} draws, in brackets the largest")
        title = "change of log₂ p (bits) without these heads; negative: less likely"
        last = frozenset([len(rows) - 2, len(rows) - 1])
        return [Table(title, columns, [*body, summary], above=above, sections=last)]

    def _row(self, index: str, name: str, places: list[int], sizes: list[int]) -> list[Cell | str]:
        before = [*self.before.tokens.tolist(), self.before.next]
        shown = fit(name, LABEL) if index else f"next: {fit(name, LABEL - 6)}"
        label = Cell(shown, style="bold")
        bits = f"{-BITS * sum(before[p] for p in places):.1f}"
        return [Cell(index, style="dim"), label, bits, *self._cells(places, sizes, 1)]

    def _cells(self, places: list[int], sizes: list[int], over: int) -> list[Cell | str]:
        cells: list[Cell | str] = [signed(sum(t.changes[p] for p in places) / over) for t in self.trials]
        for size in sizes:
            control = next(t.control for t in self.trials if len(t.heads) == size)
            draws = [sum(draw[p] for p in places) / over for draw in control]
            cells.append(f"{signed(sum(draws) / len(draws))} ({signed(max(draws, key=abs))})")
        return cells
