"""tfm train: from text to a model."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.machine import set_threads
from cli.plot import loss_svg
from cli.signals import Stop
from cli.trainplan import LENGTHS, introduce, planned, prepare, resumed
from cli.trainview import view_for
from transformer.errors import InputError
from transformer.shape import ARCHITECTURES, SIZES

if TYPE_CHECKING:
    from transformer.parallel import World
    from weights.run import Run

Number = float | None
Count = int | None
Word = str | None


class Optimizer(StrEnum):
    muon = "muon"
    adamw = "adamw"


class Schedule(StrEnum):
    wsd = "wsd"
    cosine = "cosine"


def _option(name: str, help: str, panel: str | None = None, **more: Any) -> Any:
    return typer.Option(name, help=help, rich_help_panel=panel, **more)


def train(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Text files, directories, chat .jsonl; story.txt:2 is read twice an epoch."),
    ] = None,
    out: Annotated[Path | None, _option("--out", "The run's directory: a model, its checkpoints, its log.")] = None,
    resume: Annotated[bool, _option("--resume", "Go on with the run in --out; only the budget may change.")] = False,
    config: Annotated[Path | None, _option("--config", "Start from the settings of a run.toml.")] = None,
    start_from: Annotated[
        Word, _option("--from", "Go on with, or fine-tune, this model; layers, width, heads may grow.")
    ] = None,
    teachers: Annotated[
        list[str] | None, _option("--teacher", "Learn from this model's predictions, too; may be repeated.")
    ] = None,
    lessons: Annotated[
        bool | None, _option("--lessons", "Keep what teachers predict; all epochs have the samples of the first.")
    ] = None,
    tokenizer: Annotated[Word, _option("--tokenizer", "Take this model's; one from --from is respelt in it.")] = None,
    anneal: Annotated[list[str] | None, _option("--anneal", "Take over for the decay; may be repeated.")] = None,
    seed: Annotated[Count, _option("--seed", "Of weights, data order and dropout.", min=0)] = None,
    save_every: Annotated[Count, _option("--save-every", "Steps between checkpoints.", min=1)] = None,
    keep: Annotated[Count, _option("--keep", "Checkpoints that can be resumed.", min=1)] = None,
    minutes: Annotated[Number, _option("--minutes", "Alone, it also chooses the size.", "Budget", min=0.0)] = None,
    tokens: Annotated[Count, _option("--tokens", "Train on so many tokens.", "Budget", min=1)] = None,
    steps: Annotated[Count, _option("--steps", "Make so many steps.", "Budget", min=1)] = None,
    epochs: Annotated[Number, _option("--epochs", "Read the text so often.", "Budget", min=0.0)] = None,
    preset: Annotated[
        list[str] | None,
        _option("--preset", f"A size ({', '.join(SIZES)}) or architecture ({', '.join(ARCHITECTURES)}).", "Shape"),
    ] = None,
    layers: Annotated[Count, _option("--layers", "Blocks.", "Shape", min=1)] = None,
    width: Annotated[Count, _option("--width", "Of the residual stream.", "Shape", min=1)] = None,
    heads: Annotated[Count, _option("--heads", "Query heads.", "Shape", min=1)] = None,
    kv_heads: Annotated[Count, _option("--kv-heads", "Key/value heads.", "Shape", min=1)] = None,
    position: Annotated[Word, _option("--position", "rotary, learned, sinusoidal, alibi, none.", "Shape")] = None,
    norm: Annotated[Word, _option("--norm", "rms, layer.", "Shape")] = None,
    mlp: Annotated[Word, _option("--mlp", "swiglu, geglu, gelu, relu, relu2.", "Shape")] = None,
    context: Annotated[Count, _option("--context", "Tokens the model sees at once.", "Shape", min=2)] = None,
    vocab_size: Annotated[Count, _option("--vocab-size", "Of the tokenizer to be trained.", "Shape", min=1)] = None,
    optimizer: Annotated[Optimizer | None, _option("--optimizer", "Muon with AdamW, or AdamW.", "Recipe")] = None,
    lr: Annotated[Number, _option("--lr", "Learning rate.", "Recipe")] = None,
    embedding_lr: Annotated[Number, _option("--embedding-lr", "Of what Muon does not train.", "Recipe")] = None,
    schedule: Annotated[Schedule | None, _option("--schedule", "Warm-up, flat, decay; or cosine.", "Recipe")] = None,
    warmup: Annotated[Count, _option("--warmup", "Steps.", "Recipe")] = None,
    decay: Annotated[Number, _option("--decay", "The last part of the budget (wsd), 0 to 1.", "Recipe")] = None,
    floor: Annotated[Number, _option("--floor", "The last learning rate, as a part of --lr.", "Recipe")] = None,
    batch: Annotated[Count, _option("--batch", "Samples a step.", "Recipe")] = None,
    micro_batch: Annotated[Count, _option("--micro-batch", "Of them at once; the rest is added up.", "Recipe")] = None,
    clip: Annotated[Number, _option("--clip", "The gradient's norm; 0 never.", "Recipe")] = None,
    weight_decay: Annotated[Number, _option("--weight-decay", "Of matrices and embeddings.", "Recipe")] = None,
    dropout: Annotated[Number, _option("--dropout", "Part of what is dropped.", "Recipe")] = None,
    compile: Annotated[bool | None, _option("--compile/--no-compile", "Compile the model first.", "Machine")] = None,
    shard: Annotated[bool | None, _option("--shard/--no-shard", "FSDP2 instead of DDP.", "Machine")] = None,
    dtype: options.DtypeOption = options.Dtype.auto,
    device: options.DeviceOption = options.Device.auto,
    threads: options.Threads = None,
) -> int:
    """Make a model from text."""
    given = {name: value for name, value in locals().items() if value is not None}
    if out is None:
        raise InputError("no directory for the run: give --out")
    budget = [name for name in LENGTHS if name in given]
    if len(budget) > 1:
        raise InputError(f"one budget at a time: --{' and --'.join(budget)} were given")
    from cli.memory import keep_freed_memory
    from transformer.parallel import join
    from weights.run import Run

    keep_freed_memory()
    with join() as world:
        return _train(Run(out), given, world)


def _train(run: Run, given: dict[str, Any], world: World) -> int:
    from weights.session import go_on, open_session

    view = view_for(world.first)
    search = os.environ.get("TFM_PATH", "")
    with run.lock() if world.first else nullcontext():
        if world.first:
            again = run.exists() and world.restarted
            plan = (
                run.plan() if again else resumed(run, given) if given["resume"] else planned(run, given, view, search)
            )
            prepare(run, plan, view, search)
        world.wait()
        plan = run.plan()
        set_threads(plan.running.threads)
        session = open_session(run, plan, view, world, search)
        if session.finished:
            view.note(f"{run.path}: finished at step {session.at.step}; a larger budget would go on")
            return 0
        introduce(session, view)
        stop = Stop(tell=world.first)
        try:
            done = go_on(session, view, stop)
        finally:
            view.close()
            if world.first:
                run.write("loss.svg", loss_svg(run.metrics()))
    if not done:
        view.note(f"saved step {session.at.step}; go on with: tfm train --out {run.path} --resume")
        return 128 + (stop.number or signal.SIGTERM)
    view.note(f"{run.path} is a model now: tfm generate -m {run.path}")
    return 0
