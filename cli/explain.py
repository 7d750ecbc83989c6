"""tfm explain: looks inside a model while it reads a text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import options
from transformer.errors import InputError

if TYPE_CHECKING:
    from weights.load import Loaded


class AblateBy(StrEnum):
    zero = "zero"
    mean = "mean"


def explain(
    text: Annotated[str | None, typer.Argument(help="The text to explain; - reads stdin.")] = None,
    model: options.Model = options.DEFAULT_MODEL,
    top: Annotated[
        int | None, typer.Option(min=1, max=100, help="How many tokens, parts, predictions to show.")
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also how widely each token reads.")] = False,
    words: Annotated[bool, typer.Option("--words", help="Merge pieces into words.")] = False,
    layer: Annotated[str | None, typer.Option(help="Attention of these layers: 3, 0,2-5, all or mean.")] = None,
    head: Annotated[str | None, typer.Option(help="Attention of these heads, likewise.")] = None,
    rows: Annotated[str | None, typer.Option(help="Show these rows: a:b, a number or all.")] = None,
    cols: Annotated[str | None, typer.Option(help="Show these columns of an attention matrix.")] = None,
    token: Annotated[
        str | None, typer.Option(help="One token by text (it, it#2) or index: where it reads, who reads it.")
    ] = None,
    by_hand: Annotated[bool, typer.Option("--by-hand", help="All numbers of one token, layer and head.")] = False,
    roles: Annotated[bool, typer.Option("--roles", help="What kind of head each is.")] = False,
    weights: Annotated[str | None, typer.Option(help="raw,norm,rollout,zeroing,gradient or all, compared.")] = None,
    lens: Annotated[bool, typer.Option("--lens", help="What each layer would predict.")] = False,
    attribute: Annotated[bool, typer.Option("--attribute", help="Which parts and tokens a logit comes from.")] = False,
    target: Annotated[str | None, typer.Option(help="With --attribute: this token instead of the likeliest.")] = None,
    foil: Annotated[str | None, typer.Option(help="With --attribute: the difference to this token.")] = None,
    ablate: Annotated[str | None, typer.Option(help="Take heads away: layer.head,… or auto.")] = None,
    ablate_by: Annotated[AblateBy, typer.Option(help="What an ablated head reads instead.")] = AblateBy.zero,
    verify: Annotated[bool, typer.Option("--verify", help="Compute it by other ways; exit 1 if they differ.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="For whatever is drawn at random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One view as comma-separated values.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Also draw what is printed into this file.")] = None,
    budget_mb: Annotated[int | None, typer.Option(min=1, help="Refuse what needs more memory than this.")] = None,
    file: options.PromptFile = None,
    no_stdin: options.NoStdin = False,
    dtype: options.DtypeOption = options.Dtype.auto,
    device: options.DeviceOption = options.Device.auto,
    threads: options.Threads = None,
) -> int:
    """Show what a Transformer does with a text. Tables go to stdout, what to think of them to stderr."""
    from cli.prompt import read_prompt
    from cli.question import Question

    if as_json and as_csv:
        raise InputError("--json and --csv: choose one")
    question = Question(**{name: value for name, value in locals().items() if name in Question.__dataclass_fields__})
    given = read_prompt(text, file, no_stdin)

    def load(name: str) -> Loaded:
        return options.load_model(name, dtype, device, threads)

    loaded = load(model)
    from cli.answer import Answer, draw, print_csv, print_json, print_tables
    from cli.subject import read

    answer = Answer(read(loaded, given, words), question, load, budget_mb, for_json=as_json)
    if as_json:
        print_json(answer)
    elif as_csv:
        print_csv(answer)
    else:
        print_tables(answer, everything=rows == "all")
    if svg is not None:
        draw(answer, svg)
    return answer.code
