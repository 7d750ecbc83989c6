"""One training session: from a plan, or from where a run stands, to the end of its budget or the wish to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import nn

from transformer.data import Mixture, Span, Strand
from transformer.evaluate import bits_per_byte, windows
from transformer.init import initialise
from transformer.model import Transformer
from transformer.optim import build_optimizers, optimizer_state, restore_optimizers
from transformer.shape import decoder
from transformer.train import Budget, NotFinite, Place, Step, train
from weights.corpus import Corpus, Source, encode_corpus, parse_sources, train_tokenizer
from weights.plan import Plan
from weights.run import Metrics, Run

if TYPE_CHECKING:
    from pathlib import Path

EVALUATIONS = 40  # in the course of a run, at most
APART = 20  # steps between them, at least
EVALUATED = 32  # windows of each source in them; the last one reads all


class View(Protocol):
    """Who watches a session."""

    def note(self, line: str) -> None: ...
    def reading(self, what: str, done: int, total: int) -> None: ...
    def step(self, step: Step) -> None: ...
    def evaluated(self, overall: float, sources: dict[str, float]) -> None: ...
    def saved(self, path: Path) -> None: ...


def create(run: Run, plan: Plan, view: View) -> Plan:
    """Turns text into a tokenizer, ids and a resolved plan, all written down."""
    sources, anneal = parse_sources(plan.data.sources, plan.data.anneal)
    everything = list({source.name: source for source in [*sources, *anneal]}.values())
    size = sum(source.size() for source in everything)
    tokenizer = train_tokenizer(
        everything, plan.shape.vocab_size, lambda done: view.reading("training the tokenizer", done, size)
    )
    plan = replace(plan, shape=replace(plan.shape, vocab_size=tokenizer.get_vocab_size()))
    run.prepare(tokenizer, decoder(plan.shape), None)
    run.write_corpus(
        lambda directory: encode_corpus(
            everything, tokenizer, directory, lambda done: view.reading("encoding the text", done, size)
        )
    )
    run.write_plan(plan)
    return plan


@dataclass
class Session:
    run: Run
    plan: Plan
    corpus: Corpus
    model: Transformer
    memory: dict[str, torch.Tensor]
    at: Place
    mixture: Mixture
    anneal: Mixture | None
    budget: Budget


def open_session(run: Run, plan: Plan, view: View) -> Session:
    corpus = run.corpus()
    restored = run.restore(view.note)
    if restored is None:
        model = Transformer(decoder(plan.shape))
        initialise(model, plan.recipe.seed)
        restored = model, {}, Place()
    model, memory, at = restored
    sources, anneal = (
        _mixture(corpus, listed, model.config.context, plan.recipe.seed + number) if listed else None
        for number, listed in enumerate(parse_sources(plan.data.sources, plan.data.anneal))
    )
    assert sources is not None
    return Session(run, plan, corpus, model, memory, at, sources, anneal, _budget(plan, sources))


def _mixture(corpus: Corpus, sources: list[Source], context: int, seed: int) -> Mixture:
    """Sources of equal weight are one strand, so that short ones lose nothing at their ends."""
    by_weight: dict[float, list[Span]] = {}
    for source in sources:
        by_weight.setdefault(source.weight, []).append(corpus.sources[source.name].train)
    return Mixture([(Strand(spans, context), weight) for weight, spans in by_weight.items()], seed)


def _budget(plan: Plan, mixture: Mixture) -> Budget:
    length, batch = plan.length, plan.recipe.batch
    if length.minutes is not None:
        return Budget(seconds=60 * length.minutes)
    if length.tokens is not None:
        return Budget(steps=math.ceil(length.tokens / (batch * mixture.length)))
    if length.epochs is not None:
        return Budget(steps=math.ceil(length.epochs * mixture.epoch / batch))
    return Budget(steps=length.steps)


def go_on(session: Session, view: View, stop: Callable[[], bool]) -> bool:
    """Trains, saves and evaluates; true if the budget was spent. A checkpoint comes before each evaluation."""
    run, plan, at, model = session.run, session.plan, session.at, session.model
    optimizers = build_optimizers(model, plan.recipe)
    restore_optimizers(model, optimizers, session.memory)
    session.memory = {}
    metrics = Metrics(run.path / "metrics.jsonl", at.step)
    net = cast(nn.Module, torch.compile(model)) if plan.running.compile else model

    def save() -> None:
        if run.saved != at.step:
            view.saved(run.save(model, dict(optimizer_state(model, optimizers)), at, plan.running.keep))

    def evaluate(limit: int | None) -> None:
        overall, sources = measure(session, limit, stop)
        if overall is not None:
            metrics.write({"step": at.step, "valid_bpb": overall, "sources": sources})
            view.evaluated(overall, sources)

    if due(session.budget, at.step):  # a run that is resumed was saved, but perhaps not evaluated
        evaluate(EVALUATED)
    spent = session.budget.progress(at)
    try:
        for step in train(
            net, optimizers, session.corpus.train, session.mixture, plan.recipe, session.budget, at, session.anneal
        ):
            timed = {} if session.budget.seconds is None else {"seconds": round(at.seconds, 1)}
            metrics.write(
                {"step": step.step, "tokens": step.tokens, "loss": step.loss, "grad_norm": step.grad_norm,
                 "lr": step.lr, **timed}
            )  # fmt: skip
            view.step(step)
            now = due(session.budget, step.step, spent, step.progress)
            spent = step.progress
            if stop():
                break
            if now if plan.running.save_every is None else step.step % plan.running.save_every == 0:
                save()
            if now and step.progress < 1:
                evaluate(EVALUATED)
    except NotFinite as error:
        last = "no checkpoint was saved" if run.saved is None else f"the last good checkpoint is step {run.saved}"
        raise NotFinite(f"{error}; {last}") from None
    save()
    if stop():
        return False
    evaluate(None)
    return True


def due(budget: Budget, step: int, before: float = 0.0, after: float = 0.0) -> bool:
    """Whether the validation text is to be read after this step."""
    if budget.steps is not None:
        return step % max(APART, budget.steps // EVALUATIONS) == 0
    return step == 0 or int(after * EVALUATIONS) > int(before * EVALUATIONS)


def measure(session: Session, limit: int | None, stop: Callable[[], bool]) -> tuple[float | None, dict[str, float]]:
    """Bits per byte of the held-out documents, all together and by source."""
    corpus, sources, weights = session.corpus, {}, {}
    for source in corpus.sources.values():
        edges = [*source.documents, source.valid.stop]
        spans = windows([Span(*edge) for edge in pairwise(edges)], session.model.config.context)
        if limit is not None and len(spans) > limit:
            spans = [spans[i * len(spans) // limit] for i in range(limit)]  # spread evenly
        bpb = bits_per_byte(session.model, corpus.valid, spans, corpus.token_bytes, stop)
        if bpb is not None:
            sources[source.name] = bpb
            weights[source.name] = source.valid.stop - source.valid.start
    if stop() or not sources:
        return None, {}
    return sum(sources[name] * weights[name] for name in sources) / sum(weights.values()), sources
