"""tfm models: what can be named, and what a model is made of, read from its headers alone."""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import DEFAULT_MODEL
from cli.terminal import console, safe
from transformer.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from transformer.config import Config
    from weights.checkpoint import Checkpoint

app = typer.Typer(invoke_without_command=True)


@app.callback()
def models(context: typer.Context) -> None:
    """List the models that can be named: the embedded one, and what lies under TFM_PATH."""
    if context.invoked_subcommand is not None:
        return
    from weights.load import available, open_weights

    table = _table("name", "family", "layers × width", "parameters", "path")
    for name, path in available(os.environ.get("TFM_PATH", "")):
        try:
            checkpoint = open_weights(path)
        except InputError as error:
            table.add_row(safe(name), "", "", "", safe(str(error)))
            continue
        config = checkpoint.config
        shape = f"{len(config.layers)} × {config.width}"
        table.add_row(safe(name), checkpoint.family.model_type, shape, _count(_parameters(checkpoint)), safe(str(path)))
    console().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A directory, a GGUF file, or a name from `tfm models`.")] = DEFAULT_MODEL,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens to reckon the KV cache for.")] = None,
) -> None:
    """Show a model's architecture, tensors and memory, without loading it."""
    from weights.load import open_weights, resolve

    checkpoint = open_weights(resolve(name, os.environ.get("TFM_PATH", "")))
    out = console()
    for table in (_architecture(checkpoint), _tensors(checkpoint), _memory(checkpoint, context)):
        out.print(table)


def _architecture(checkpoint: Checkpoint) -> Table:
    c, layer = checkpoint.config, checkpoint.config.layers[0]
    table = _table("part", "choice")
    windows = sorted({layer.window for layer in c.layers if layer.window})
    mlp = f"{'gated' if c.gated else 'plain'} {c.activation}, {layer.mlp_width} wide"
    if layer.experts:
        mlp += f", {layer.experts.active} of {layer.experts.count} experts a token"
    rows = {
        "family": checkpoint.family.model_type,
        "vocabulary": f"{c.vocab_size}{', tied to the head' if c.tied else ''}",
        "context": str(c.context),
        "layers": f"{len(c.layers)}, {c.residual} norm"
        if "parallel" not in c.residual
        else f"{len(c.layers)}, parallel",
        "width": str(c.width),
        "norm": f"{c.norm.kind} norm, eps {c.norm.eps:g}",
        "positions": _positions(c),
        "attention": f"{c.heads} heads of {c.head_dim}, {c.kv_heads} of keys and values",
        "window": ", ".join(map(str, windows)) or "none",
        "mlp": mlp,
    }
    for part, choice in rows.items():
        table.add_row(part, choice)
    return table


def _positions(c: Config) -> str:
    ropes = dict.fromkeys(layer.rope for layer in c.layers if layer.rope)
    words = [f"rotary {rope.scaling}, theta {rope.theta:g}, {rope.dim} of {c.head_dim}" for rope in ropes]
    if c.position_embedding != "none":
        words.append(c.position_embedding)
    if c.alibi:
        words.append("ALiBi")
    return "; ".join(words) or "none"


def _tensors(checkpoint: Checkpoint) -> Table:
    """Tensors of the same name in every layer and expert share a row."""
    groups: dict[tuple[str, tuple[int, ...], str], int] = {}
    for name, entry in checkpoint.entries.items():
        key = (re.sub(r"\.\d+(?=\.|$)", ".*", name), entry.shape, entry.dtype)
        groups[key] = groups.get(key, 0) + 1
    table = _table("tensor", "shape", "dtype", "of these", "parameters")
    for (name, shape, dtype), count in groups.items():
        dims = " × ".join(map(str, shape))
        table.add_row(safe(name), dims, dtype, str(count), _count(count * math.prod(shape)))
    table.add_row("all", "", "", str(len(checkpoint.entries)), _count(_parameters(checkpoint)))
    return table


def _memory(checkpoint: Checkpoint, context: int | None) -> Table:
    c = checkpoint.config
    length = context or c.context
    cells = sum(min(length, layer.window or length) for layer in c.layers) * 2 * c.kv_heads * c.head_dim
    weights = _parameters(checkpoint)
    table = _table("memory", "16 bit", "32 bit")
    table.add_row("weights", _bytes(2 * weights), _bytes(4 * weights))
    table.add_row(f"KV cache of {length} tokens", _bytes(2 * cells), _bytes(4 * cells))
    table.add_row("both", _bytes(2 * (weights + cells)), _bytes(4 * (weights + cells)))
    return table


def _parameters(checkpoint: Checkpoint) -> int:
    return sum(math.prod(entry.shape) for entry in checkpoint.entries.values())


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _count(number: int) -> str:
    return f"{number:,}"


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
