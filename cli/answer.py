"""From a question to its answer: the views it asks for, one shared pass for them all, and how they leave."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.question import Question, one_of
from cli.render import Table, show, write_csv
from cli.subject import Subject, read
from cli.terminal import console, note, safe
from cli.views.ablate import AblateView
from cli.views.across import AcrossView
from cli.views.at import AtView
from cli.views.attribute import AttributeView
from cli.views.by_hand import ByHandView
from cli.views.difference import DifferenceView, in_common_cells
from cli.views.lens import LensView
from cli.views.matrix import MatrixView
from cli.views.overview import Overview
from cli.views.roles import RolesView
from cli.views.token import TokenView
from cli.views.verify import VerifyView
from cli.views.view import View
from cli.views.weights import WeightsView
from transformer.errors import InputError

if TYPE_CHECKING:
    from weights.load import Loaded

MEGABYTE = 1 << 20
Load = Callable[[str], "Loaded"]


def views(subject: Subject, question: Question, load: Load, for_json: bool) -> list[View]:
    """Every view asked for beside the default one, in the order they are shown."""
    q = question
    takes_token = q.by_hand or q.lens or q.attribute or q.weights is not None
    asked: dict[type[View], bool] = {
        AtView: q.at is not None,
        MatrixView: (q.layer is not None or q.head is not None) and (for_json or not q.by_hand),
        TokenView: q.token is not None and q.at is None and not takes_token,
        ByHandView: q.by_hand,
        RolesView: q.roles,
        WeightsView: q.weights is not None,
        LensView: q.lens,
        AttributeView: q.attribute,
        AblateView: q.ablate is not None,
        VerifyView: q.verify,
    }
    chosen = [view(subject, question) for view, wanted in asked.items() if wanted]
    if q.diff is not None:
        chosen.append(DifferenceView(subject, q, read(subject.loaded, q.diff, q.words)))
    if q.vs is not None:
        chosen.append(DifferenceView(*_both(subject, load(q.vs), q)))
    if q.across is not None:
        chosen.append(AcrossView(subject, q, q.across, load))
    return chosen


def _both(subject: Subject, other: Loaded, question: Question) -> tuple[Subject, Question, Subject]:
    ours, theirs = in_common_cells(subject, read(other, subject.text, question.words))
    return ours, question, theirs


def _at(subject: Subject, question: Question) -> Question:
    """A generated token is asked about by the row behind which it was chosen."""
    if question.at is None:
        return question
    if subject.prompt is None:
        raise InputError("--at is about generated tokens: it needs --generated")
    row = subject.prompt + one_of(question.at, len(subject.ids) - subject.prompt, "--at") - 1
    cell = next(i for i, pieces in enumerate(subject.cells) if row in pieces)
    if subject.cells[cell][-1] != row:
        raise InputError(f"--at {question.at}: it is not the first token of a word; leave out --words")
    return replace(question, token=str(cell))


class Answer:
    """What was found. The default view is computed when nothing else was asked for, and always for JSON."""

    def __init__(self, subject: Subject, question: Question, load: Load, budget_mb: int | None, for_json: bool):
        self.subject, question = subject, _at(subject, question)
        self.asked = views(subject, question, load, for_json)
        self.overview = Overview(subject, question) if for_json or not self.asked else None
        self.views = [*([self.overview] if self.overview else []), *self.asked]
        observers = [observer for view in self.views for observer in view.observers]
        check_budget(max(subject.needs(observers), *(view.needs() for view in self.views)), budget_mb)
        if watching := [view for view in self.views if view.in_pass]:
            x = subject.run(observers)
            for view in watching:
                view.finish(x)

    def as_object(self) -> dict[str, Any]:
        """The shape of `explain --json`."""
        assert self.overview is not None
        config = self.subject.model.config
        return {
            "schema_version": 1,
            "model": self.subject.loaded.name,
            "text": self.subject.text,
            "n_layers": len(config.layers),
            "n_heads": config.heads,
            "tokens": self.overview.data(),
            "next": self.overview.next(),
            **{view.key: view.data() for view in self.asked},
            "caveats": self.caveats(),
        }

    def caveats(self) -> list[str]:
        lines = [line for view in self.views for line in view.caveats()]
        return list(dict.fromkeys([*lines, *_rounding(self.subject.loaded)]))

    def tables(self, width: int) -> list[Table]:
        return [table for view in self.views for table in view.tables(width)]

    @property
    def code(self) -> int:
        return int(any(view.failed() for view in self.views))


def _rounding(loaded: Loaded) -> list[str]:
    """Whether the weights are not those that were trained, but rounded ones."""
    stored = {entry.dtype for entry in loaded.checkpoint.entries.values()} - {"F64", "F32", "F16", "BF16"}
    kinds = [f"the file's {', '.join(sorted(stored))} weights"] if stored else []
    if loaded.precision.startswith("int8") or "float16" in loaded.precision:
        kinds.append(loaded.precision)
    return [f"computed with {' and '.join(kinds)}: these are the numbers of a rounded model"] if kinds else []


def print_json(answer: Answer) -> None:
    sys.stdout.write(json.dumps(answer.as_object(), ensure_ascii=False) + "\n")


def print_csv(answer: Answer) -> None:
    if len(answer.views) > 1:
        raise InputError(f"--csv prints one view, {len(answer.views)} were asked for")
    write_csv(answer.views[0].records(), sys.stdout)


def print_tables(answer: Answer, everything: bool) -> None:
    """On a terminal a long table is cut in the middle, unless everything was asked for."""
    out = console()
    show(out, answer.tables(out.width), paged=out.is_terminal and not everything)
    sys.stdout.flush()
    for line in answer.caveats():
        note(safe(line))


def draw(answer: Answer, path: Path) -> None:
    from cli.figure import write_svg

    width = console().width
    write_svg(path, answer.tables(width), width, f"{answer.subject.loaded.name}: {answer.subject.text}")


def check_budget(needed: int, budget_mb: int | None) -> None:
    from cli.memory import available_memory

    free = available_memory()
    allowed = free if budget_mb is None else budget_mb * MEGABYTE
    if needed > allowed:
        whose = "this machine has free" if budget_mb is None else "--budget-mb allows"
        raise InputError(
            f"this needs about {needed // MEGABYTE:,} MB above the model, {whose} {allowed // MEGABYTE:,}; "
            "ask for fewer rows (--rows a:b), layers or heads, or for one --token"
        )
