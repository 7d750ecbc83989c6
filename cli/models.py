"""tfm models: what can be named, and what a model is made of, read from its headers alone."""

from __future__ import annotations

import os

import typer

app = typer.Typer(help="List the models that can be named, or show one.", invoke_without_command=True)


@app.callback()
def models(context: typer.Context) -> None:
    """List the embedded models and the directories under TFM_PATH."""
    if context.invoked_subcommand is None:
        from weights.load import available

        for name, path in available(os.environ.get("TFM_PATH", "")):
            print(name, path)
