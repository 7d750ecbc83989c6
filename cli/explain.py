"""tfm explain: looks inside a model while it reads a text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.request import SAMPLING, Wish
from transformer.errors import InputError

if TYPE_CHECKING:
    from cli.answer import Answer
    from weights.load import Loaded

VIEWS, WRITING, OUTPUT = "Views", "Writing first (--generated)", "Output"


class AblateBy(StrEnum):
    zero = "zero"
    mean = "mean"


def explain(
    text: Annotated[str | None, typer.Argument(help="The text to explain; - reads stdin.")] = None,
    model: options.Model = options.DEFAULT_MODEL,
    top: Annotated[int | None, typer.Option(min=1, max=100, help="How many tokens, parts, guesses to show.")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also how widely each token reads.")] = False,
    words: Annotated[bool, typer.Option("--words", help="Merge pieces into words.")] = False,
    layer: Annotated[
        str | None, typer.Option(help="Attention of layers: 3, 0,2-5, all, mean.", rich_help_panel=VIEWS)
    ] = None,
    head: Annotated[str | None, typer.Option(help="Attention of heads, likewise.", rich_help_panel=VIEWS)] = None,
    token: Annotated[
        str | None,
        typer.Option(help="A token by text (it, it#2) or index: where it reads, who reads it.", rich_help_panel=VIEWS),
    ] = None,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="All numbers of one token, layer and head.", rich_help_panel=VIEWS)
    ] = False,
    roles: Annotated[bool, typer.Option("--roles", help="What kind of head each is.", rich_help_panel=VIEWS)] = False,
    weights: Annotated[
        str | None, typer.Option(help="raw,norm,rollout,zeroing,gradient or all, compared.", rich_help_panel=VIEWS)
    ] = None,
    lens: Annotated[bool, typer.Option("--lens", help="What each layer would predict.", rich_help_panel=VIEWS)] = False,
    attribute: Annotated[
        bool, typer.Option("--attribute", help="Which parts and tokens a logit comes from.", rich_help_panel=VIEWS)
    ] = False,
    target: Annotated[
        str | None, typer.Option(help="--attribute this token, not the likeliest.", rich_help_panel=VIEWS)
    ] = None,
    foil: Annotated[
        str | None, typer.Option(help="--attribute the difference to this token.", rich_help_panel=VIEWS)
    ] = None,
    ablate: Annotated[
        str | None, typer.Option(help="Take heads away: layer.head,… or auto.", rich_help_panel=VIEWS)
    ] = None,
    ablate_by: Annotated[
        AblateBy, typer.Option(help="What an ablated head reads.", rich_help_panel=VIEWS)
    ] = AblateBy.zero,
    diff: Annotated[str | None, typer.Option(help="Compare with another text.", rich_help_panel=VIEWS)] = None,
    vs: Annotated[str | None, typer.Option(help="Compare with another model.", rich_help_panel=VIEWS)] = None,
    across: Annotated[
        Path | None, typer.Option(help="How heads developed in this training run.", rich_help_panel=VIEWS)
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compute by other ways; exit 1 if they differ.", rich_help_panel=VIEWS)
    ] = False,
    generate_first: Annotated[
        bool, typer.Option("--generated", help="Write first, then explain all of it.", rich_help_panel=WRITING)
    ] = False,
    at: Annotated[
        int | None, typer.Option(help="Why this generated token? Counted from 0.", rich_help_panel=WRITING)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("-n", "--max-tokens", min=1, help="Tokens to write.", rich_help_panel=WRITING)
    ] = None,
    temperature: Annotated[float | None, typer.Option("-t", "--temperature", rich_help_panel=WRITING)] = None,
    top_k: Annotated[int | None, typer.Option(rich_help_panel=WRITING)] = None,
    top_p: Annotated[float | None, typer.Option(rich_help_panel=WRITING)] = None,
    min_p: Annotated[float | None, typer.Option(rich_help_panel=WRITING)] = None,
    repetition_penalty: Annotated[float | None, typer.Option(rich_help_panel=WRITING)] = None,
    presence_penalty: Annotated[float | None, typer.Option(rich_help_panel=WRITING)] = None,
    frequency_penalty: Annotated[float | None, typer.Option(rich_help_panel=WRITING)] = None,
    stop: Annotated[list[str] | None, typer.Option(rich_help_panel=WRITING)] = None,
    chat: Annotated[bool, typer.Option("--chat", rich_help_panel=WRITING)] = False,
    system: Annotated[str | None, typer.Option(rich_help_panel=WRITING)] = None,
    rows: Annotated[str | None, typer.Option(help="These rows: a:b, a number, all.", rich_help_panel=OUTPUT)] = None,
    cols: Annotated[str | None, typer.Option(help="These columns of a matrix.", rich_help_panel=OUTPUT)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.", rich_help_panel=OUTPUT)] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One view as CSV.", rich_help_panel=OUTPUT)] = False,
    jsonl: Annotated[
        str | None, typer.Option(help="Texts from a JSONL file, or -; JSON out.", rich_help_panel=OUTPUT)
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw what is printed, too.", rich_help_panel=OUTPUT)] = None,
    seed: Annotated[int, typer.Option(min=0, help="For whatever is drawn at random.")] = 0,
    budget_mb: Annotated[int | None, typer.Option(min=1, help="Refuse what needs more memory.")] = None,
    file: options.PromptFile = None,
    no_stdin: options.NoStdin = False,
    dtype: options.DtypeOption = options.Dtype.auto,
    device: options.DeviceOption = options.Device.auto,
    threads: options.Threads = None,
    quantize: options.QuantizeOption = None,
) -> int:
    """Show what a Transformer does with a text. Tables go to stdout, what to think of them to stderr."""
    from cli.prompt import read_prompt
    from cli.question import Question

    given = dict(locals())
    question = Question(**{name: given[name] for name in Question.__dataclass_fields__})
    _check(given)
    source = None if jsonl is not None else read_prompt(text, file, no_stdin)

    def load(name: str) -> Loaded:
        return options.load_model(name, dtype, device, threads, quantize)

    loaded = load(str(across) if across is not None and model == options.DEFAULT_MODEL else model)

    def answer(text: str) -> Answer:
        from cli.answer import Answer
        from cli.generated import LENGTH, generated
        from cli.subject import read

        wish = Wish(
            **{name: given[name] for name in SAMPLING},
            max_tokens=max_tokens or LENGTH,
            stop=tuple(stop or ()),
            chat=chat or system is not None,
            system=system,
            seed=seed,
        )
        subject = generated(loaded, text, wish, words, at) if generate_first else read(loaded, text, words)
        return Answer(subject, question, load, budget_mb, for_json=as_json or jsonl is not None)

    if source is None:
        from cli.texts import explain_lines

        return explain_lines(str(jsonl), lambda text: answer(text).as_object())
    return _give(answer(source), as_json, as_csv, everything=rows == "all", svg=svg)


def _check(given: dict[str, Any]) -> None:
    """Options that exclude or need one another."""
    if given["as_json"] and given["as_csv"]:
        raise InputError("--json and --csv: choose one")
    for option in ("text", "file", "svg", "as_csv"):
        if given["jsonl"] is not None and given[option]:
            raise InputError("--jsonl takes texts from its lines and prints JSON: give no text, --file, --svg or --csv")
    for option in ("target", "foil"):
        if given[option] is not None and not given["attribute"]:
            raise InputError(f"--{option} is about --attribute, which was not asked for")
    if given["at"] is not None and not given["generate_first"]:
        raise InputError("--at is about generated tokens: it needs --generated")


def _give(answer: Answer, as_json: bool, as_csv: bool, everything: bool, svg: Path | None) -> int:
    from cli.answer import draw, print_csv, print_json, print_tables

    if as_json:
        print_json(answer)
    elif as_csv:
        print_csv(answer)
    else:
        print_tables(answer, everything)
    if svg is not None:
        draw(answer, svg)
    return answer.code
