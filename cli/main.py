"""The Typer app, and what becomes of errors: one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cli import explain, generate, kernels, models, train
from cli.terminal import complain, guard_streams
from transformer.errors import EnvironmentFailed, InputError

BUG = 3


class PlainList(TyperGroup):
    """Lists its commands in plain text: to load rich for it takes longer than all the rest."""

    def __init__(self, **settings: Any):
        super().__init__(**(settings | {"rich_markup_mode": None}))


app = typer.Typer(
    cls=PlainList,
    name="tfm",
    help="Generate text with a Transformer, look inside it, train one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("generate")(generate.generate)
app.command("explain")(explain.explain)
app.command("train")(train.train)
app.add_typer(models.app, name="models")
app.add_typer(kernels.app, name="kernels")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tfm {version('tfm')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    guard_streams()
    sys.exit(_run())


def _run() -> int:
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return 130
    except typer.Abort:
        return 130
    except Exception as error:
        if os.environ.get("TFM_DEBUG"):
            raise
        message, code = _explain(error)
        complain(message)
        return code


def _explain(error: Exception) -> tuple[str, int]:
    """The one line and the exit code of an error."""
    if isinstance(error, InputError):
        return str(error), 2
    if isinstance(error, EnvironmentFailed):
        return str(error), 1
    if isinstance(error, typer.TyperException):
        return error.format_message(), 2
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out of memory", 1
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
        return f"{error.filename or 'output'}: {error.strerror}", 1
    return f"this is a bug of tfm: {type(error).__name__}: {error} (TFM_DEBUG=1 shows where)", BUG
