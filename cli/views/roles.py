"""--roles: the kind of every head, on this text and on random tokens said twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.question import Question
from cli.render import Cell, Column, Table, share
from cli.subject import Subject
from cli.views.view import View, number
from transformer.explain.roles import LOCAL, PATTERNS, Roles, kind, repeated
from transformer.tokenizer import BYTE_PIECE

if TYPE_CHECKING:
    from torch import Tensor

SAID_TWICE = 64
MEANING = {
    "induction": "what followed this token earlier",
    "duplicate": "the same token earlier",
    "previous": "the token before",
    "self": "itself",
    "local": f"two to {LOCAL} tokens back",
    "sink": "the first token",
}


class RolesView(View):
    key = "roles"
    caveat = (
        "a head is named after the pattern that holds at least .3 of its attention and three times chance; "
        "one text cannot establish a head's role, and a small model may have no induction heads"
    )

    def __init__(self, subject: Subject, question: Question):
        super().__init__(subject, question)
        self.text = Roles(subject.model.config, subject.ids)
        self.observers = [self.text]

    def finish(self, x: Tensor) -> None:
        self.said_twice = on_repeated(self.subject, self.question.seed)

    def data(self) -> dict[str, Any]:
        return {
            "text": _scores(self.text),
            "repeated": {"tokens": len(self.said_twice.rows), "seed": self.question.seed, **_scores(self.said_twice)},
        }

    def records(self) -> list[dict[str, Any]]:
        return [
            {"on": on, "layer": layer, "head": head, "pattern": name, "score": score, "chance": found["chance"]}
            for on, scores in self.data().items()
            for name, found in scores["patterns"].items()
            for layer, row in enumerate(found["scores"])
            for head, score in enumerate(row)
        ]

    def tables(self, width: int) -> list[Table]:
        count = len(self.said_twice.rows)
        return [
            self._grid(self.text, f"kinds of heads on this text ({len(self.subject.ids)} tokens)"),
            self._grid(
                self.said_twice, f"kinds of heads on {count} random tokens said twice (seed {self.question.seed})"
            ),
        ]

    def _grid(self, roles: Roles, title: str) -> Table:
        kinds, scores = kinds_of(roles), roles.scores.tolist()
        columns = [Column("layer", right=True, label=True)]
        columns += [Column(f"head {head}" if head == 0 else str(head)) for head in range(len(kinds[0]))]
        body: list[list[Cell | str]] = []
        for layer, row in enumerate(kinds):
            cells = [
                "·"
                if n is None
                else Cell(f"{PATTERNS[n].letter} {share(scores[n][layer][h])}", heat=scores[n][layer][h])
                for h, n in enumerate(row)
            ]
            body.append([Cell(str(layer), style="dim"), *cells])
        found = [n for row in kinds for n in row if n is not None]
        legend = []
        for n, pattern in enumerate(PATTERNS):
            even = float(roles.chance[n])
            tells = "n/a: nothing here could tell" if even != even else f"{found.count(n)} heads; chance {share(even)}"
            legend.append(f"{pattern.letter}  {pattern.name}, {MEANING[pattern.name]}: {tells}")
        return Table(title, columns, body, below=legend, pages=False)


def on_repeated(subject: Subject, seed: int) -> Roles:
    """The scores of every head on random tokens said twice."""
    import torch

    from transformer.recording import Recorder

    model, specials = subject.model, set(subject.loaded.tokenizer.specials.values())
    added = [i for i, span in zip(subject.ids, subject.spans, strict=True) if span == (0, 0) and i in specials][:1]
    length = min(SAID_TWICE, (model.config.context - len(added)) // 2)
    ids, rows = repeated(_ordinary(subject), added, length, seed)
    roles = Roles(model.config, ids, rows)
    with torch.inference_mode():
        model.hidden(torch.tensor([ids], device=model.device), tap=Recorder(roles))
    return roles


def _ordinary(subject: Subject) -> list[int]:
    """Tokens that a model has met in training: special ones and single bytes are in every vocabulary, met or not, and
    a small model knows nothing of those that were not."""
    tokenizer, size = subject.loaded.tokenizer, subject.model.config.vocab_size
    specials = set(tokenizer.specials.values())
    pieces = {i: tokenizer.piece(i) or "" for i in range(min(tokenizer.size, size)) if i not in specials}
    met = [i for i, piece in pieces.items() if len(piece) > 1 and not BYTE_PIECE.fullmatch(piece)]
    return met if len(met) >= SAID_TWICE else list(pieces)


def kinds_of(roles: Roles) -> list[list[int | None]]:
    """The pattern that each head is named after, by layer and head."""
    scores, chance = roles.scores.permute(1, 2, 0).tolist(), roles.chance.tolist()
    return [[kind(head, chance) for head in layer] for layer in scores]


def _scores(roles: Roles) -> dict[str, Any]:
    scores, kinds = roles.scores.tolist(), kinds_of(roles)
    patterns = {
        pattern.name: {
            "chance": number(float(roles.chance[n])),
            "scores": [[number(score) for score in row] for row in scores[n]],
        }
        for n, pattern in enumerate(PATTERNS)
    }
    names = [[None if n is None else PATTERNS[n].name for n in row] for row in kinds]
    return {"patterns": patterns, "kinds": names}
