"""tfm kernels: the compiled parts that make decoding and training faster."""

from __future__ import annotations

import typer

from cli.terminal import safe

app = typer.Typer(no_args_is_help=True)


@app.callback()
def kernels() -> None:
    """Compiled parts for faster decoding and training. Everything works without them."""


@app.command()
def build() -> None:
    """Compile the kernels for this machine, once, into the user's cache. Needs a C++ compiler."""
    from weights.native.library import build_native

    print(safe(str(build_native())))
