"""One stretch of training: from where a run stands to the end of its budget, or to the wish to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import nn
from torch.optim import Optimizer

from transformer.accelerate import accelerate_training
from transformer.coarse import coarse_pays, coarsen
from transformer.data import Documents, Mixture, Span, Strand
from transformer.errors import InputError
from transformer.evaluate import ROWS, bits_per_byte, windows
from transformer.footprint import training_bytes
from transformer.generate import Request, generate, new_cache
from transformer.grow import grow
from transformer.init import initialise
from transformer.loss import cross_entropy
from transformer.model import Transformer
from transformer.native_training import NativeLoss
from transformer.optim import build_optimizers, optimizer_state, restore_optimizers
from transformer.parallel import World, spread, whole_model
from transformer.respell import respell
from transformer.sampling import Sampling
from transformer.schedule import Budget, Place
from transformer.shape import decoder
from transformer.train import Feed, Loss, NotFinite, Objective, Step, train
from weights.base import Base, base_of, borrowed_tokenizer, fresh_base, grown_base, respelling, respelt_base
from weights.checkpoint import Checkpoint, load_model
from weights.corpus import Corpus, encode_corpus, open_corpus
from weights.lessons import KeptLessons
from weights.load import open_weights, resolve
from weights.native.library import find_native
from weights.plan import Plan
from weights.run import Metrics, Run
from weights.sources import Source, merged, parse_sources
from weights.vocabulary import has_conversations, train_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

EVALUATIONS = 40  # in the course of a run, at most
APART = 20  # steps between them, at least
MINUTES = 2  # between them where the budget is one of time and long enough for FEW of them
FEW = 10
PART = 0.05  # of a budget of time, that they may take
EVALUATED = 48  # windows in them, shared out among the sources; the last one reads all
FEWEST = 8  # of each
SAMPLE = 96  # tokens
COARSE_ROWS = 8  # samples that tell teachers what they are going to read


class View(Protocol):
    """Who watches."""

    def note(self, line: str) -> None: ...
    def reading(self, what: str, done: int, total: int) -> None: ...
    def step(self, step: Step) -> None: ...
    def evaluated(self, overall: float, sources: dict[str, float]) -> None: ...
    def saved(self, path: Path, write: Callable[[], str]) -> None:
        """`write` lets the saved model write a sample."""


@dataclass
class Session:
    run: Run
    plan: Plan
    world: World
    base: Base
    corpus: Corpus
    model: Transformer
    module: nn.Module  # the model, as several processes call it
    optimizers: list[Optimizer]
    feed: Feed
    objective: Objective
    budget: Budget
    at: Place
    needs: int  # bytes of memory, beyond what is there when it opens

    @property
    def finished(self) -> bool:
        return self.budget.progress(self.at) >= 1


def create(run: Run, plan: Plan, view: View, search: str) -> Plan:
    """Makes a run of a plan: tokenizer, ids, and the plan as it turned out, all on disk."""
    sources = merged(*parse_sources(plan.data.sources, plan.data.anneal))
    size = sum(source.size() for source in sources)
    if plan.running.start_from is not None:
        base = base_of(resolve(plan.running.start_from, search))
        if plan.data.tokenizer is not None:
            base = respelt_base(base, base_of(resolve(plan.data.tokenizer, search)))
        base = grown_base(base, plan.growth)
    else:
        chat, vocab_size = has_conversations(sources), plan.shape.vocab_size
        if plan.data.tokenizer is not None:
            backend, vocab_size = borrowed_tokenizer(resolve(plan.data.tokenizer, search), chat)
        else:
            backend = train_tokenizer(sources, vocab_size, lambda n: view.reading("training the tokenizer", n, size))
            if backend.get_vocab_size() < vocab_size:
                view.note(f"the text yields a vocabulary of {backend.get_vocab_size()}, not {vocab_size}")
                vocab_size = backend.get_vocab_size()
        plan = replace(plan, shape=replace(plan.shape, vocab_size=vocab_size))
        base = fresh_base(backend, decoder(plan.shape), chat)

    if plan.data.lessons and not plan.data.teachers:
        raise InputError("--lessons needs a --teacher to give them")
    list(_teachers(plan, base, search))  # refused, if at all, before the text is encoded

    def encode(directory: Path) -> None:
        encode_corpus(sources, base, directory, lambda n: view.reading("encoding the text", n, size))
        _mixtures(plan, open_corpus(directory, base), base)  # refuses what is too little to train on

    run.prepare(base, encode)
    run.write_plan(plan)
    return plan


def open_session(run: Run, plan: Plan, view: View, world: World, search: str) -> Session:
    base = run.base()
    corpus = open_corpus(run.data, base)
    model, memory, at = run.restore(view.note) or (_start(plan, base, search), {}, Place())
    device = f"cuda:{torch.cuda.current_device()}" if plan.running.device == "cuda" else plan.running.device
    model = model.to(device)
    library = None if plan.running.compile else find_native()  # torch.compile cannot look into it
    teachers = {name: load_model(teacher, torch.float32, device) for name, teacher in _teachers(plan, base, search)}
    loss_of: Loss = cross_entropy
    if library is not None:
        for learner in (model, *teachers.values()):
            accelerate_training(learner, library)
        loss_of = NativeLoss(library)
    objective = Objective(plan.recipe, loss_of, [teachers[name] for name in plan.data.teachers])
    mixture, anneal = _mixtures(plan, corpus, base)
    shards = world.size if plan.running.shard else 1
    needs = training_bytes(model, objective, mixture.length, shards)
    needs -= sum(tensor.nbytes for tensor in memory.values())
    module = spread(model, world, plan.running.shard)
    optimizers = build_optimizers(model, plan.recipe, world)
    restore_optimizers(model, optimizers, memory)
    if plan.recipe.batch % world.size:
        raise InputError(f"a batch of {plan.recipe.batch} cannot be shared out evenly among {world.size} processes")
    feed = Feed(corpus.train, mixture, anneal, device)
    if plan.data.lessons:
        kept = KeptLessons(run.lessons, world.rank, mixture.length, base.config.vocab_size)
        objective = replace(objective, lessons=kept)
        if coarse_pays(device) and not plan.recipe.autocast:  # bf16 is as fast, and nearer to what they would say
            (some,) = feed.batches(range(COARSE_ROWS), at, COARSE_ROWS)
            for teacher in teachers.values():
                coarsen(teacher, some.ids, library)
    budget = _budget(plan, mixture)
    return Session(run, plan, world, base, corpus, model, module, optimizers, feed, objective, budget, at, needs)


def _start(plan: Plan, base: Base, search: str) -> Transformer:
    if plan.running.start_from is None:
        model = Transformer(base.config)
        initialise(model, plan.recipe.seed)
        return model
    path = resolve(plan.running.start_from, search)
    model = load_model(open_weights(path), torch.float32)
    if plan.data.tokenizer is not None:
        model = respell(model, respelling(base_of(path), base), base.config.vocab_size)
    if model.config != base.config:
        return grow(model, base.config, plan.recipe.seed)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()  # out of the mapped file
    return model.requires_grad_(True)


def _teachers(plan: Plan, base: Base, search: str) -> Iterator[tuple[str, Checkpoint]]:
    """Each of them once, by name; refuses those that do not speak of the same tokens."""
    length = plan.recipe.length or base.config.context
    for name in dict.fromkeys(plan.data.teachers):
        path = resolve(name, search)
        teacher = base_of(path)
        config, vocabulary = teacher.config, teacher.tokenizer.vocabulary()
        if config.vocab_size != base.config.vocab_size or vocabulary != base.tokenizer.vocabulary():
            raise InputError(f"--teacher {name}: has another vocabulary than the model that is to learn from it")
        if config.context < length:
            raise InputError(f"--teacher {name}: sees {config.context} tokens at once, fewer than a sample's {length}")
        yield name, open_weights(path)


def _mixtures(plan: Plan, corpus: Corpus, base: Base) -> tuple[Mixture, Mixture | None]:
    sources, anneal = parse_sources(plan.data.sources, plan.data.anneal)
    mixture = _mixture(plan, corpus, base, sources, plan.recipe.seed)
    return mixture, _mixture(plan, corpus, base, anneal, plan.recipe.seed + 1) if anneal else None


def _mixture(plan: Plan, corpus: Corpus, base: Base, sources: list[Source], seed: int) -> Mixture:
    """Sources of equal weight are one strand, so that short ones lose nothing at their ends."""
    length, documents = plan.recipe.length or base.config.context, Documents(corpus.train, base.begin[0])
    by_weight: dict[float, list[Span]] = {}
    for source in sources:
        by_weight.setdefault(source.weight, []).append(corpus.sources[source.name].train)
    tokens = sum(span.stop - span.start for spans in by_weight.values() for span in spans)
    if tokens <= length:
        names = ", ".join(str(path) for source in sources for path in source.paths)
        raise InputError(f"{names}: {tokens} tokens are too few for one sample of {length} + 1 (see --context)")
    strands = [(Strand(spans, length, documents), weight) for weight, spans in by_weight.items()]
    return Mixture(strands, seed, alike=plan.data.lessons)


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
    run, plan, at, world, budget = session.run, session.plan, session.at, session.world, session.budget
    module = cast(nn.Module, torch.compile(session.module)) if plan.running.compile else session.module
    metrics = Metrics(run.path / "metrics.jsonl", at.step) if world.first else None

    evaluating = 0.0  # seconds

    def evaluate(limit: int | None) -> None:
        nonlocal evaluating
        started = time.monotonic()
        overall, sources = measure(session, limit, stop)
        evaluating += world.from_first(time.monotonic() - started)  # or they would not agree when to do it again
        if overall is not None and metrics is not None:
            metrics.write({"step": at.step, "valid_bpb": overall, "sources": sources})
            view.evaluated(overall, sources)

    if due(budget, at.step):  # a run that is resumed was saved here, but perhaps not evaluated
        evaluate(EVALUATED)
    spent, stopped = budget.progress(at), False
    try:
        for step in train(module, session.optimizers, session.feed, session.objective, budget, at, world):
            if metrics is not None:
                metrics.write(_row(step, at, budget))
            view.step(step)
            stopped = world.any(stop())
            if stopped:
                break
            now, spent = due(budget, at.step, spent, step.progress), step.progress
            if now if plan.running.save_every is None else at.step % plan.running.save_every == 0:
                save(session, view)
            if now and step.progress < 1 and affordable(budget, evaluating, at.seconds):
                evaluate(EVALUATED)
    except NotFinite as error:
        last = "no checkpoint was saved yet" if run.saved is None else f"the last good checkpoint is step {run.saved}"
        raise NotFinite(f"{error}; {last}") from None
    save(session, view)
    if not stopped:
        evaluate(None)
    return not stopped


def _row(step: Step, at: Place, budget: Budget) -> dict[str, float]:
    row = {"step": step.step, "tokens": step.tokens, "loss": step.loss, "grad_norm": step.grad_norm, "lr": step.lr}
    return row if budget.seconds is None else row | {"seconds": round(at.seconds, 1)}


def due(budget: Budget, step: int, before: float = 0.0, after: float = 0.0) -> bool:
    """Whether the validation text is to be read after this step."""
    if budget.steps is not None:
        return step % max(APART, budget.steps // EVALUATIONS) == 0
    assert budget.seconds is not None
    times = min(EVALUATIONS, max(FEW, budget.seconds // (60 * MINUTES)))
    return step == 0 or int(after * times) > int(before * times)


def affordable(budget: Budget, evaluating: float, seconds: float) -> bool:
    """Whether the clock, if there is one, leaves time for reading the validation text once more."""
    return budget.seconds is None or evaluating < PART * seconds


def save(session: Session, view: View) -> None:
    """Every process takes part: what is shared out is put together first."""
    run, at = session.run, session.at
    if run.saved == at.step:
        return
    model, memory = whole_model(session.model), dict(optimizer_state(session.model, session.optimizers))
    if session.world.first:
        path = run.save(model, memory, at, session.plan.running.keep)
        view.saved(path, lambda: sample(model, session.base, at.step))
    run.saved = at.step


def sample(model: Transformer, base: Base, seed: int) -> str:
    """What the model writes by itself, drawn with a generator of its own."""
    ends = frozenset((*base.begin, *base.end))
    request = Request(list(base.begin), Sampling(), min(SAMPLE, model.config.context - 1), ends, seed)
    model.eval()
    for _ in generate(model, new_cache(model), request):
        pass
    return base.tokenizer.decode(request.text)


def measure(session: Session, limit: int | None, stop: Callable[[], bool]) -> tuple[float | None, dict[str, float]]:
    """Bits per byte of the held-out documents: all together, each source by the bytes it has, and one by one."""
    corpus, sources, sizes = session.corpus, {}, {}
    for name, source in corpus.sources.items():
        spans = windows(source.held_out(), session.feed.mixture.length)
        if limit is not None and len(spans) > (some := max(FEWEST, limit // len(corpus.sources))):
            spans = [spans[i * len(spans) // some] for i in range(some)]  # spread evenly
        # No more at once than in training, so that no more memory is needed.
        rows = min(ROWS, session.plan.recipe.micro_batch)
        bpb = bits_per_byte(session.module, corpus.valid, spans, corpus.token_bytes, stop, session.world, rows)
        if bpb is not None:
            sources[name] = bpb
            ids, learnt = corpus.valid.read(source.valid)
            sizes[name] = int(corpus.token_bytes[ids[learnt]].sum())
    if not sources or len(sources) < len([s for s in corpus.sources.values() if s.documents]):
        return None, {}
    return sum(sources[name] * sizes[name] for name in sources) / sum(sizes.values()), sources
