from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from torch.nn import functional as F

from transformer.data import IGNORED, Batch, Mixture, Span, Strand, Tokens
from transformer.init import initialise
from transformer.model import Transformer
from transformer.optim import build_optimizers
from transformer.parallel import World
from transformer.schedule import Budget, Place, Recipe
from transformer.shape import choose, decoder
from transformer.train import Feed, NotFinite, Objective, Step, train

TEXT = torch.arange(300).remainder(7).to(torch.uint16)  # each id tells the next
CONFIG = decoder(choose([], {"layers": 1, "width": 16, "heads": 2, "context": 8, "vocab_size": 16}))


def fresh() -> Transformer:
    model = Transformer(CONFIG)
    initialise(model, 0)
    return model


def feed(tokens: Tokens | None = None, anneal: bool = False) -> Feed:
    mixture = Mixture([(Strand([Span(0, 200)], 8), 1.0)], 0)
    return Feed(tokens or Tokens(TEXT), mixture, Mixture([(Strand([Span(200, 300)], 8), 1.0)], 1) if anneal else None)


def steps(
    model: Transformer, recipe: Recipe, at: Place | None = None, steps: int = 30, **more: object
) -> Iterator[Step]:
    optimizers = build_optimizers(model, recipe, World())
    given = more.get("feed", feed())
    return train(model, optimizers, given, Objective(recipe), Budget(steps=steps), at or Place())  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_it_learns(optimizer: str) -> None:
    recipe = Recipe(optimizer=optimizer, lr=0.02, embedding_lr=0.02, batch=8, warmup=0)  # type: ignore[arg-type]
    losses = [step.loss for step in steps(fresh(), recipe)]
    assert losses[0] > 2 and losses[-1] < 0.5


def test_micro_batches_add_up_to_the_batch() -> None:
    whole, parts = ([*steps(fresh(), Recipe(batch=8, micro_batch=size), steps=3)] for size in (8, 3))
    for a, b in zip(whole, parts, strict=True):
        assert a.loss == pytest.approx(b.loss, abs=1e-5) and a.grad_norm == pytest.approx(b.grad_norm, abs=1e-4)


def test_only_what_is_learnt_counts() -> None:
    learnt = torch.zeros(300, dtype=torch.bool)
    learnt[::3] = True
    noise = torch.where(learnt, TEXT.long(), torch.randint(0, 16, (300,), generator=torch.Generator().manual_seed(0)))
    last = [*steps(fresh(), Recipe(batch=8, lr=0.02), steps=40, feed=feed(Tokens(noise, learnt)))][-1]
    all_of_it = [*steps(fresh(), Recipe(batch=8, lr=0.02), steps=40, feed=feed(Tokens(noise)))][-1]
    assert last.loss < all_of_it.loss


def test_a_run_can_be_cut_anywhere() -> None:
    recipe = Recipe(batch=4, dropout=0.2)
    model, at = fresh(), Place()
    whole = [*steps(model, recipe, at, steps=6)]
    again, there = fresh(), Place()
    optimizers = build_optimizers(again, recipe, World())
    first = [*islice(train(again, optimizers, feed(), Objective(recipe), Budget(steps=6), there), 2)]
    torch.manual_seed(99)  # whatever else draws in between
    rest = [*train(again, optimizers, feed(), Objective(recipe), Budget(steps=6), there)]
    assert first + rest == whole and at == there
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(torch.get_rng_state(), torch.get_rng_state())


def test_text_and_teachers_have_equal_voices() -> None:
    model, teachers = fresh(), [fresh(), fresh()]
    for seed, teacher in enumerate(teachers, 1):
        initialise(teacher, seed)
    for learner in (model, *teachers):
        learner.double()
    ids = TEXT[:32].long().view(4, 8)
    targets = (ids + 1) % 7
    targets[0, :3] = IGNORED
    b = Batch(ids, targets, 29)
    logits = [learner(ids).flatten(0, 1) for learner in (model, *teachers)]
    learnt = targets.flatten() != IGNORED
    voices = [F.one_hot(targets.flatten().clamp(min=0), 16), *(z.softmax(-1) for z in logits[1:])]
    wanted = -(sum(voices) / 3 * logits[0].log_softmax(-1))[learnt].sum()
    objective = Objective(Recipe(), teachers=teachers)
    turns = [objective(model, b, turn) for turn in (3, 4)]
    assert not torch.isclose(*turns)
    found = sum(turns) / 2  # the teachers take turns
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(loss, [*model.parameters()]) for loss in (found, wanted)]
    torch.testing.assert_close(*gradients)


def test_a_student_comes_nearer_to_its_teacher_than_text_alone_brings_it() -> None:
    teacher = fresh()  # knows nothing, and says so
    ids = TEXT[200:264].long().view(8, 8)
    far = []
    for teachers in ([], [teacher]):
        student, recipe = fresh(), Recipe(batch=8, lr=0.02)
        initialise(student, 5)
        optimizers = build_optimizers(student, recipe, World())
        for _ in train(student, optimizers, feed(), Objective(recipe, teachers=teachers), Budget(steps=40), Place()):
            pass
        with torch.no_grad():
            far.append(float(F.kl_div(student(ids).log_softmax(-1), teacher(ids).softmax(-1), reduction="sum")))
    assert far[1] < 0.5 * far[0]


def test_dropout_differs_from_step_to_step_and_by_seed() -> None:
    still = Recipe(batch=4, lr=0.0, embedding_lr=0.0, dropout=0.5)
    one_sample = Feed(Tokens(TEXT), Mixture([(Strand([Span(0, 9)], 8), 1.0)], 0))
    model = Transformer(CONFIG)
    initialise(model, 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(5))
    losses = [step.loss for step in steps(model, still, steps=3, feed=one_sample)]
    assert len(set(losses)) == 3
    assert [step.loss for step in steps(model, still, steps=3, feed=one_sample)] == losses


def test_the_second_list_takes_over_when_the_rate_comes_down() -> None:
    at = Place()
    run = steps(fresh(), Recipe(batch=4, decay=0.5), at, steps=8, feed=feed(anneal=True))
    places = [at.anneal_from for _ in run]
    assert places == [None] * 4 + [16] * 4
    spans = feed(anneal=True)._spans(15, 16), feed(anneal=True)._spans(16, 16)
    assert spans[0][0].start < 200 <= spans[1][0].start


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_number_that_is_none_stops_before_the_update(bad: float) -> None:
    model, at = fresh(), Place()
    run = steps(model, Recipe(batch=4), at, steps=8)
    next(run)
    with torch.no_grad():
        model.blocks[0].mlp.gate_up.weight[0, 0] = bad  # type: ignore[union-attr]
        model.blocks[0].mlp.down.weight[0, 0] = 1.0  # type: ignore[union-attr]
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(NotFinite, match=r"(loss|gradient) is (nan|inf) at step 2 \(samples 4 to 7\); nothing was"):
        next(run)
    assert at.step == 1
    for a, b in zip(before, model.parameters(), strict=True):
        assert torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5))


def test_a_step_tells_where_it_stands() -> None:
    first, second = islice(steps(fresh(), Recipe(batch=4, warmup=1, lr=0.5), steps=20), 2)
    assert (first.step, first.tokens, first.progress) == (1, 32, 0.05)
    assert (first.lr, second.lr) == (0.25, 0.5)


def test_time_is_counted_where_it_is_the_budget() -> None:
    at, model, recipe = Place(seconds=100.0), fresh(), Recipe(batch=2)
    next(train(model, build_optimizers(model, recipe, World()), feed(), Objective(recipe), Budget(seconds=1e6), at))
    assert 100 < at.seconds < 1000
