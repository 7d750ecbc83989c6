"""tfm generate: writes with a model."""

from __future__ import annotations

import json
import secrets
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from cli.request import SAMPLING, Job, Wish, prepare
from cli.terminal import note, progress, safe
from transformer.errors import InputError

if TYPE_CHECKING:
    from weights.load import Loaded

LONG_PROMPT = 2048  # tokens from which on reading it shows progress


def generate(
    prompt: Annotated[str | None, typer.Argument(help="The text to continue; - reads stdin.")] = None,
    model: options.Model = options.DEFAULT_MODEL,
    max_tokens: Annotated[int | None, typer.Option("-n", "--max-tokens", min=1, help="Tokens to write.")] = None,
    temperature: Annotated[float | None, typer.Option("-t", "--temperature", help="0 takes the likeliest.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Keep this many candidates; 0 keeps all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Keep the likeliest that hold this much mass.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Drop what is less likely than this times the best.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Divides what was said or asked.")] = None,
    presence_penalty: Annotated[float | None, typer.Option(help="Subtracted once from what was said.")] = None,
    frequency_penalty: Annotated[float | None, typer.Option(help="Subtracted for each time it was said.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Drawn and printed if not given.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")] = None,
    samples: Annotated[int, typer.Option("-N", "--samples", min=1, help="So many texts, seed + 0, 1, …")] = 1,
    logprobs: Annotated[int | None, typer.Option(min=0, help="With --json: this many candidates a token.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Apply the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="System message; implies --chat.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a completion, one a line.")] = False,
    jsonl: Annotated[str | None, typer.Option(help="Prompts from a JSONL file, or - for stdin.")] = None,
    rows: Annotated[int, typer.Option(min=1, max=4096, help="With --jsonl: rows decoded together.")] = 32,
    prompt_lookup: Annotated[
        int, typer.Option(min=0, max=64, help="Guess up to so many tokens from the context: the same text, faster.")
    ] = 0,
    stats: Annotated[bool, typer.Option("--stats", help="Say on stderr what ran, and how fast.")] = False,
    raw_output: Annotated[bool, typer.Option("--raw-output", help="Do not make control characters visible.")] = False,
    file: options.PromptFile = None,
    no_stdin: options.NoStdin = False,
    dtype: options.DtypeOption = options.Dtype.auto,
    device: options.DeviceOption = options.Device.auto,
    threads: options.Threads = None,
    quantize: options.QuantizeOption = None,
) -> int:
    """Continue a text. The text goes to stdout, everything else to stderr."""
    from cli.prompt import read_prompt

    given = {name: value for name, value in locals().items() if name in SAMPLING}
    drawn = secrets.randbits(32) if seed is None else seed
    wish = Wish(
        **given,
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
        logprobs=logprobs,
        chat=chat or system is not None,
        system=system,
        seed=drawn,
    )
    wish.check()
    if jsonl is not None:
        if prompt is not None or file is not None or samples > 1:
            raise InputError("--jsonl takes its prompts from its lines: give no prompt, --file or --samples with it")
        if prompt_lookup:
            raise InputError("--prompt-lookup is for one text at a time: not with --jsonl")
        from cli.jsonl import generate_lines

        return generate_lines(jsonl, wish, rows, lambda: _load(model, dtype, device, threads, quantize), seed is None)
    text = read_prompt(prompt, file, no_stdin)
    loaded, load_s = _load(model, dtype, device, threads, quantize)
    for number in range(samples):
        job = prepare(loaded, Wish(**{**vars(wish), "seed": drawn + number}), text)
        if seed is None and number == 0 and job.request.sampling.temperature > 0:
            note(f"seed {drawn}")
        job.load_s = load_s
        _run(job, prompt_lookup, as_json, raw_output, last=number == samples - 1)
        if stats:
            note(_stats(job))
    _hint(loaded, wish)
    return 0


def _load(
    model: str,
    dtype: options.Dtype,
    device: options.Device,
    threads: int | None,
    quantize: options.Quantize | None,
) -> tuple[Loaded, float]:
    started = time.perf_counter()
    loaded = options.load_model(model, dtype, device, threads, quantize)
    return loaded, time.perf_counter() - started


def _run(job: Job, lookup: int, as_json: bool, raw: bool, last: bool) -> None:
    from transformer import generate as engine

    def reading(done: int) -> None:
        if len(job.request.prompt) >= LONG_PROMPT:
            progress(f"reading the prompt: {done} of {len(job.request.prompt)} tokens")

    model = job.loaded.model
    for token in engine.generate(model, engine.new_cache(model), job.request, progress=reading, lookup=lookup):
        if len(job.request.text) == 1:
            progress("")
        text = job.feed(token)
        if not as_json and text:
            sys.stdout.write(text if raw else safe(text))
            sys.stdout.flush()
    if as_json:
        sys.stdout.write(json.dumps(job.as_object(), ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("\n" if last else "\n\n")
    sys.stdout.flush()


def _stats(job: Job) -> str:
    import torch

    timings, used = job.as_object()["timings"], job.as_object()["usage"]
    return (
        f"{safe(job.loaded.name)}: {job.loaded.precision} on {job.loaded.model.device}, "
        f"{torch.get_num_threads()} threads; loaded in {timings['load_s']:.2f} s, "
        f"{used['prompt_tokens']} prompt tokens in {timings['prefill_s']:.2f} s, "
        f"{used['completion_tokens']} written at {timings['decode_tokens_per_s']:.1f} a second; "
        f"ended by {job.completion.finish}"
    )


def _hint(loaded: Loaded, wish: Wish) -> None:
    if loaded.template is not None and not wish.chat and sys.stderr is not None and sys.stderr.isatty():
        note(f"{safe(loaded.name)} has a chat template; --chat applies it")
