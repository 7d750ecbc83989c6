"""From the options of `tfm train` to a plan, and what is said about it before the start."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from cli.machine import available_cores, set_threads
from cli.memory import resident_bytes
from transformer.errors import InputError
from transformer.schedule import Recipe
from transformer.shape import Growth, Shape, choose, decoder

if TYPE_CHECKING:
    from weights.plan import Plan
    from weights.run import Run
    from weights.session import Session, View

LENGTHS = ("minutes", "tokens", "steps", "epochs")
MACHINE = ("device", "dtype", "threads", "compile", "shard")  # may differ where a run goes on
FINE_TUNING = {"lr": 0.002, "embedding_lr": 0.0003}  # a trained model is moved, not made
CONTEXT = 1024  # tokens a sample of a model to go on with, at most, unless --context says so
MICRO_BATCH = 8192  # tokens
NAMES = {"start_from": "--from", "teachers": "--teacher"}  # of options that go by another one than their flag's


def resumed(run: Run, given: dict[str, Any]) -> Plan:
    """The run's own plan; of the options only the budget and the machine's count."""
    from weights.plan import Length

    plan = run.plan()
    length = {name: given[name] for name in LENGTHS if name in given}
    others = given.keys() - {"out", "resume", *length, *MACHINE}
    if others:
        raise InputError(f"--resume goes on as the run began: only the budget may change, not {_flags(others)}")
    if length:
        plan = replace(plan, length=Length(**length))
    running = {name: given[name] for name in ("threads", "compile", "shard") if name in given}
    return replace(plan, running=replace(plan.running, **running))


def planned(run: Run, given: dict[str, Any], view: View, search: str) -> Plan:
    """The plan of a new run: what suits the model of --from, then --config, then presets, then single options."""
    from weights.load import open_weights, resolve
    from weights.plan import Plan, changed, load_plan

    if run.exists():
        raise InputError(f"{run.path}: holds a run already; go on with --resume, or choose another --out")
    autocast = _in_bf16(given)
    plan = Plan(recipe=Recipe(autocast=autocast))
    if "start_from" in given:
        seen = open_weights(resolve(given["start_from"], search)).config.context
        plan = changed(plan, {"recipe": FINE_TUNING | {"length": min(seen, CONTEXT)}}, "--from")
    if "config" in given:
        plan = load_plan(given["config"], plan)
    chosen = {field.name: given[field.name] for field in fields(Shape) if field.name in given}
    fresh = not (chosen or given.get("preset") or "config" in given or "start_from" in given)
    if "preset" in given:
        plan = replace(plan, shape=choose(given["preset"], {}))
    recipe = {field.name: given[field.name] for field in fields(Recipe) if field.name in given}
    growth: dict[str, Any] = {}
    if given["dtype"] != "auto":  # or what --config says of it holds
        recipe["autocast"] = autocast
    if "start_from" in given:
        growth = {field.name: chosen.pop(field.name) for field in fields(Growth) if field.name in chosen}
        if wrong := chosen.keys() | ({"preset"} & given.keys()):
            raise InputError(f"--from brings a shape of its own: {_flags(wrong)} cannot change it")
        if "context" in given:
            recipe["length"] = given["context"]
    if "tokenizer" in given and "vocab_size" in given:
        raise InputError("--tokenizer has a vocabulary of its own: --vocab-size cannot change it")
    data = {name: list(given[name]) for name in ("sources", "anneal", "teachers") if given.get(name)}
    tables = {
        "data": data | {name: given[name] for name in ("tokenizer", "lessons") if name in given},
        "length": {name: given[name] for name in LENGTHS if name in given},
        "shape": chosen,
        "growth": growth,
        "recipe": recipe,
        "running": {k: given[k] for k in ("start_from", "save_every", "keep", "compile", "shard") if k in given},
    }
    if tables["length"]:
        plan = replace(plan, length=type(plan.length)())
    plan = changed(plan, tables, "options")
    if not plan.data.sources:
        raise InputError("no text to train on: name files, or a --config that does")
    if not plan.length.given:
        raise InputError("no budget: give --minutes, --tokens, --steps or --epochs")
    decoder(plan.shape)  # complains now rather than when the text is encoded
    plan = _for_this_machine(plan, given)
    if fresh and plan.length.minutes is not None:
        plan = _calibrated(plan, recipe, view)
    if "micro_batch" not in recipe and "config" not in given:
        rows = max(1, MICRO_BATCH // (plan.recipe.length or plan.shape.context))
        plan = replace(plan, recipe=replace(plan.recipe, micro_batch=min(rows, plan.recipe.batch)))
    return plan


def _in_bf16(given: dict[str, Any]) -> bool:
    """As --dtype says, or as was measured."""
    from transformer.calibrate import bf16_pays
    from weights.load import pick_device

    if given["dtype"] not in ("auto", "fp32", "bf16"):
        raise InputError(f"--dtype {given['dtype']}: training computes in fp32, or bf16 where that is faster")
    return given["dtype"] == "bf16" or (given["dtype"] == "auto" and bf16_pays(pick_device(given["device"].value)))


def _for_this_machine(plan: Plan, given: dict[str, Any]) -> Plan:
    """Threads and device are settled here once, so that going on is the same computation."""
    from weights.load import pick_device

    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # processes of torchrun on this machine
    threads = given.get("threads") or plan.running.threads or max(1, available_cores() // beside)
    set_threads(threads)  # before anything is measured
    return replace(plan, running=replace(plan.running, threads=threads, device=pick_device(given["device"].value)))


def _calibrated(plan: Plan, recipe: dict[str, Any], view: View) -> Plan:
    """With nothing given but the time, size and batch are chosen for the machine and the text."""
    from transformer.calibrate import fitting, measured_flops
    from weights.sources import merged, parse_sources

    assert plan.length.minutes is not None
    size = sum(source.size() for source in merged(*parse_sources(plan.data.sources, plan.data.anneal)))
    flops = measured_flops(plan.running.device, plan.recipe.autocast)
    name, tokens = fitting(flops, 60 * plan.length.minutes, size)
    shape = choose([name], {})
    batch = recipe.get("batch", max(1, tokens // shape.context))
    view.note(
        f"this machine trains at {flops / 1e9:,.0f} GFLOP/s: for {plan.length.minutes:g} minutes and "
        f"{size / 1e6:,.1f} MB of text the preset {name}, {batch} × {shape.context} tokens a step"
    )
    return replace(plan, shape=shape, recipe=replace(plan.recipe, batch=batch))


def prepare(run: Run, plan: Plan, view: View, search: str) -> None:
    """Encodes the text, if this was not done; with it, the plan is on disk."""
    from weights.session import create

    run.collect()
    if run.exists():
        run.write_plan(plan)
    else:
        create(run, plan, view, search)


def introduce(session: Session, view: View) -> None:
    """The resolved plan in a few lines, and the memory it will take."""
    from weights.native.library import find_native

    config, recipe = session.model.config, session.plan.recipe
    count = sum(p.numel() for p in session.model.parameters())
    length, batch = session.feed.mixture.length, recipe.batch
    held_out = len(session.corpus.valid.ids)
    view.note(
        f"{len(config.layers)} layers × {config.width}, {config.heads} heads, context {config.context}, "
        f"vocabulary {config.vocab_size}: {count:,} parameters"
    )
    view.note(f"{len(session.corpus.train.ids):,} tokens to train on, {held_out:,} held out")
    if not held_out:
        view.note("a single document leaves none to hold out: nothing will tell how the model does on unseen text")
    view.note(
        f"{recipe.optimizer}, lr {recipe.lr:g}, {recipe.schedule}; {batch} × {length} tokens a step; {_budget(session)}"
    )
    if session.objective.teachers:
        view.note(f"learning from the text and from what is predicted by {', '.join(session.plan.data.teachers)}")
    if session.objective.lessons is not None:
        size = (session.feed.mixture.epoch + (anneal.epoch if (anneal := session.feed.anneal) else 0)) * length
        view.note(f"what they predict is kept: up to {size * config.vocab_size / 1e9:,.2f} GB in {session.run.lessons}")
    if session.plan.running.device == "cpu" and not session.plan.running.compile and find_native() is None:
        view.note("compiled kernels would make this faster: tfm kernels build")
    view.note(f"peak memory about {(resident_bytes() + session.needs) / 1e9:.2f} GB")
    if session.at.step:
        view.note(f"going on from step {session.at.step}")


def _budget(session: Session) -> str:
    ((unit, amount),) = session.plan.length.given.items()
    if session.budget.steps is None:
        return f"{amount:g} {unit}"
    epochs = session.budget.steps * session.plan.recipe.batch / session.feed.mixture.epoch
    return f"{session.budget.steps:,} steps, {epochs:.3g} epochs"


def _flags(names: set[str]) -> str:
    return ", ".join(NAMES.get(name, f"--{name.replace('_', '-')}") for name in sorted(names))
