"""tfm train: from text to a model."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Threads
from cli.terminal import note, safe
from transformer.errors import InputError

if TYPE_CHECKING:
    from transformer.train import Step


def train(
    sources: Annotated[list[str] | None, typer.Argument(help="Text files; file.txt:2 is read twice an epoch.")] = None,
    out: Annotated[Path, typer.Option("--out", help="The run's directory.")] = Path("run"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    anneal: Annotated[list[str] | None, typer.Option("--anneal", help="Sources for the decay phase.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A run.toml to start from.")] = None,
    preset: Annotated[
        list[str] | None, typer.Option("--preset", help="A size, an architecture, or one of each.")
    ] = None,
    minutes: Annotated[float | None, typer.Option("--minutes")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens")] = None,
    steps: Annotated[int | None, typer.Option("--steps")] = None,
    epochs: Annotated[float | None, typer.Option("--epochs")] = None,
    layers: Annotated[int | None, typer.Option("--layers")] = None,
    width: Annotated[int | None, typer.Option("--width")] = None,
    heads: Annotated[int | None, typer.Option("--heads")] = None,
    kv_heads: Annotated[int | None, typer.Option("--kv-heads")] = None,
    position: Annotated[str | None, typer.Option("--position")] = None,
    norm: Annotated[str | None, typer.Option("--norm")] = None,
    mlp: Annotated[str | None, typer.Option("--mlp")] = None,
    mlp_width: Annotated[int | None, typer.Option("--mlp-width")] = None,
    context: Annotated[int | None, typer.Option("--context")] = None,
    vocab_size: Annotated[int | None, typer.Option("--vocab-size")] = None,
    optimizer: Annotated[str | None, typer.Option("--optimizer")] = None,
    schedule: Annotated[str | None, typer.Option("--schedule")] = None,
    lr: Annotated[float | None, typer.Option("--lr")] = None,
    embedding_lr: Annotated[float | None, typer.Option("--embedding-lr")] = None,
    weight_decay: Annotated[float | None, typer.Option("--weight-decay")] = None,
    batch: Annotated[int | None, typer.Option("--batch")] = None,
    micro_batch: Annotated[int | None, typer.Option("--micro-batch")] = None,
    warmup: Annotated[int | None, typer.Option("--warmup")] = None,
    decay: Annotated[float | None, typer.Option("--decay")] = None,
    floor: Annotated[float | None, typer.Option("--floor")] = None,
    clip: Annotated[float | None, typer.Option("--clip")] = None,
    dropout: Annotated[float | None, typer.Option("--dropout")] = None,
    seed: Annotated[int | None, typer.Option("--seed")] = None,
    save_every: Annotated[int | None, typer.Option("--save-every")] = None,
    keep: Annotated[int | None, typer.Option("--keep")] = None,
    compile: Annotated[bool, typer.Option("--compile")] = False,
    threads: Threads = None,
) -> None:
    """Train a model on text: tokenizer, encoding, training, evaluation."""
    from cli.machine import set_threads
    from cli.memory import keep_freed_memory
    from transformer.shape import choose
    from weights.plan import Plan, changed, load_plan
    from weights.run import Run
    from weights.session import create, go_on, open_session

    def given(**values: Any) -> dict[str, Any]:
        return {key: value for key, value in values.items() if value is not None}

    length = given(minutes=minutes, tokens=tokens, steps=steps, epochs=epochs)
    if len(length) > 1:
        raise InputError(f"one budget, please: --{' and --'.join(length)} were given")
    run, view = Run(out), PlainView()
    with run.lock():
        if resume:
            plan = run.plan()
            if length:
                from dataclasses import replace

                from weights.plan import Length

                plan = replace(plan, length=Length(**length))
                run.write_plan(plan)
        else:
            if run.exists():
                raise InputError(f"{out}: holds a run already; go on with --resume, or choose another --out")
            plan = load_plan(config) if config else Plan()
            shape = choose(
                preset or [],
                given(
                    layers=layers,
                    width=width,
                    heads=heads,
                    kv_heads=kv_heads,
                    position=position,
                    norm=norm,
                    mlp=mlp,
                    mlp_width=mlp_width,
                    context=context,
                    vocab_size=vocab_size,
                ),
            )
            from dataclasses import replace

            if preset or not config:
                plan = replace(plan, shape=shape)
            plan = changed(
                plan,
                {
                    "data": given(sources=sources and list(sources), anneal=anneal),
                    "length": length,
                    "recipe": given(
                        optimizer=optimizer,
                        schedule=schedule,
                        lr=lr,
                        embedding_lr=embedding_lr,
                        weight_decay=weight_decay,
                        batch=batch,
                        micro_batch=micro_batch,
                        warmup=warmup,
                        decay=decay,
                        floor=floor,
                        clip=clip,
                        dropout=dropout,
                        seed=seed,
                    ),
                    "running": given(save_every=save_every, keep=keep, compile=compile or None, threads=threads),
                },
                "options",
            )
            if not plan.data.sources:
                raise InputError("no text: name one or more files")
            if not plan.length.given:
                raise InputError("no budget: give --minutes, --tokens, --steps or --epochs")
            plan = create(run, plan, view)
        set_threads(plan.running.threads)
        keep_freed_memory()
        session = open_session(run, plan, view)
        parameters = sum(p.numel() for p in session.model.parameters())
        train_tokens, held_out = len(session.corpus.train.ids), len(session.corpus.valid.ids)
        note(f"{parameters:,} parameters; {train_tokens:,} tokens to train on, {held_out:,} held out")
        stopped: list[int] = []

        def on_signal(number: int, frame: object) -> None:
            stopped.append(number)
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            note("stopping after this step; again to leave at once")

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        done = go_on(session, view, lambda: bool(stopped))
    note("done" if done else f"saved step {session.at.step}; go on with: tfm train --out {out} --resume")
    if stopped:
        raise typer.Exit(128 + stopped[0])


class PlainView:
    """One plain line an interval."""

    INTERVAL = 10.0  # seconds

    def __init__(self) -> None:
        self.last, self.tokens, self.told = time.monotonic(), 0, ""

    def note(self, line: str) -> None:
        note(safe(line))

    def reading(self, what: str, done: int, total: int) -> None:
        if what != self.told:
            self.told = what
            note(f"{what}: {total / 1e6:.1f} MB")

    def step(self, step: Step) -> None:
        now = time.monotonic()
        if self.tokens == 0:
            self.last, self.tokens = now, step.tokens
        elif now - self.last >= self.INTERVAL or step.progress >= 1:
            speed = (step.tokens - self.tokens) / (now - self.last)
            self.last, self.tokens = now, step.tokens
            note(
                f"step {step.step}  {step.progress:6.1%}  loss {step.loss:.3f}  lr {step.lr:.2g}  "
                f"norm {step.grad_norm:.2f}  {speed:,.0f} tokens/s"
            )

    def evaluated(self, overall: float, sources: dict[str, float]) -> None:
        each = "  ".join(f"{safe(name)} {bpb:.4f}" for name, bpb in sources.items())
        note(f"bits per byte {overall:.4f}  ({each})")

    def saved(self, path: Path) -> None:
        note(f"saved {safe(str(path))}")
