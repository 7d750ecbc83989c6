"""--across: how heads and surprisal developed over the checkpoints of a training run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.question import Question
from cli.render import Cell, Column, Table, fitting, share, spark
from cli.subject import Subject, read
from cli.terminal import progress
from cli.views.roles import kinds_of, on_repeated
from cli.views.view import View, number
from transformer.errors import InputError
from transformer.explain.development import formed
from transformer.explain.predictions import predictions
from transformer.explain.roles import PATTERNS

if TYPE_CHECKING:
    from torch import Tensor

    from weights.load import Loaded

SHOWN = ("induction", "duplicate", "previous", "sink")
SPARKS = range(16, 5, -1)  # checkpoints in a sparkline: as many as there is room for


class Stage(NamedTuple):
    step: int
    bits: float | None  # mean surprisal of the text's tokens
    scores: list[list[list[float]]]  # patterns, layers, heads
    kinds: list[list[int | None]]
    chance: list[float]


class AcrossView(View):
    key = "across"
    caveat = (
        "scores are taken on random tokens said twice; a head counts as formed at the first checkpoint from which on "
        "its score stays above .3, so a step is as exact as the checkpoints are dense"
    )

    def __init__(self, subject: Subject, question: Question, run: Path, load: Callable[[str], Loaded]):
        super().__init__(subject, question)
        self.checkpoints, self.load = checkpoints(run), load

    def finish(self, x: Tensor) -> None:
        self.stages = []
        for number_, (step, path) in enumerate(self.checkpoints):
            progress(f"checkpoint {number_ + 1} of {len(self.checkpoints)}: step {step}")
            self.stages.append(self._stage(step, read(self.load(str(path)), self.subject.text, False)))
        progress("")

    def _stage(self, step: int, subject: Subject) -> Stage:
        import torch

        with torch.inference_mode():
            surprisal = predictions(subject.model, subject.run([]), subject.ids, 1).surprisal
        roles = on_repeated(subject, self.question.seed)
        bits = sum(surprisal) / len(surprisal) if surprisal else None
        return Stage(step, bits, roles.scores.tolist(), kinds_of(roles), roles.chance.tolist())

    def series(self, pattern: str, layer: int, head: int) -> list[float]:
        place = [p.name for p in PATTERNS].index(pattern)
        return [stage.scores[place][layer][head] for stage in self.stages]

    def formed(self, pattern: str, layer: int, head: int) -> int | None:
        return formed([stage.step for stage in self.stages], self.series(pattern, layer, head))

    def _heads(self) -> list[tuple[int, int]]:
        last = self.stages[-1].kinds
        return [(layer, head) for layer in range(len(last)) for head in range(len(last[layer]))]

    def data(self) -> dict[str, Any]:
        return {
            "steps": [stage.step for stage in self.stages],
            "surprisal_bits": [None if stage.bits is None else number(stage.bits) for stage in self.stages],
            "heads": [
                {
                    "layer": layer,
                    "head": head,
                    "scores": {p.name: [number(s) for s in self.series(p.name, layer, head)] for p in PATTERNS},
                    "induction_formed_at": self.formed("induction", layer, head),
                }
                for layer, head in self._heads()
            ],
        }

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "step": stage.step,
                "layer": layer,
                "head": head,
                "pattern": p.name,
                "score": number(stage.scores[n][layer][head]),
            }
            for stage in self.stages
            for layer, head in self._heads()
            for n, p in enumerate(PATTERNS)
        ]

    def tables(self, width: int) -> list[Table]:
        return [self._surprisal(), fitting(width, self._development, SPARKS)]

    def _surprisal(self) -> Table:
        body: list[list[Cell | str]] = [
            [f"{stage.step:,}", "" if stage.bits is None else f"{stage.bits:.2f}", *self._counts(stage)]
            for stage in self.stages
        ]
        columns = [Column("step", right=True), Column("bits a token", right=True)]
        columns += [Column(p.name, right=True) for p in PATTERNS]
        return Table("the text's surprisal, and how many heads are of each kind", columns, body)

    def _counts(self, stage: Stage) -> list[str]:
        kinds = [n for row in stage.kinds for n in row]
        return [str(kinds.count(n)) if kinds.count(n) else "·" for n in range(len(PATTERNS))]

    def _development(self, size: int) -> Table:
        columns = [Column("head"), *(Column(name) for name in SHOWN), Column("now"), Column("since step", right=True)]
        body: list[list[Cell | str]] = []
        for layer, head in self._heads():
            kind, since = self.stages[-1].kinds[layer][head], self.formed("induction", layer, head)
            cells = [_spark(self.series(name, layer, head), size) for name in SHOWN]
            now = "·" if kind is None else PATTERNS[kind].name
            body.append([f"{layer}.{head}", *cells, now, "" if since is None else f"{since:,}"])
        steps = [stage.step for stage in self.stages]
        title = f"scores of every head over {len(steps)} checkpoints, step {steps[0]:,} to {steps[-1]:,}"
        return Table(title, columns, body, below=[self._verdict()])

    def _verdict(self) -> str:
        found = [
            (since, layer, head)
            for layer, head in self._heads()
            if (since := self.formed("induction", layer, head)) is not None
        ]
        if found:
            since, layer, head = min(found)
            return f"the first induction head is {layer}.{head}, from step {since:,} on; {len(found)} in all"
        score, layer, head = max((self.series("induction", *where)[-1], *where) for where in self._heads())
        chance = self.stages[-1].chance[[p.name for p in PATTERNS].index("induction")]
        return (
            f"no induction head has formed; the nearest is {layer}.{head} with {share(score)} (chance {share(chance)})"
        )


def checkpoints(run: Path) -> list[tuple[int, Path]]:
    """The checkpoints of a training run, oldest first."""
    from weights.snapshot import steps

    folder = run / "checkpoints"
    found = sorted(steps(folder))
    if not found:
        raise InputError(f"--across {run}: no checkpoints/step-N in it, so it is no training run")
    return [(step, folder / f"step-{step}") for step in found]


def _spark(series: Sequence[float], size: int) -> str:
    """So many of them, evenly chosen, the last always and in figures."""
    if len(series) > size:
        series = [series[round(i * (len(series) - 1) / (size - 1))] for i in range(size)]
    return f"{spark(series)} {share(series[-1])}"
