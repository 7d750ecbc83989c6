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
    from cli.render import Table
    from transformer.config import Config
    from weights.checkpoint import Checkpoint

app = typer.Typer(invoke_without_command=True)


@app.callback()
def models(context: typer.Context) -> None:
    """List the models that can be named.

    The embedded one, and what lies under TFM_PATH."""
    if context.invoked_subcommand is not None:
        return
    from cli.render import show as print_tables
    from weights.load import available, open_weights

    rows = []
    for name, path in available(os.environ.get("TFM_PATH", "")):
        try:
            checkpoint = open_weights(path)
        except InputError as error:
            rows.append([safe(name), "", "", "", safe(str(error))])
            continue
        shape = f"{len(checkpoint.config.layers)} × {checkpoint.config.width}"
        size = f"{_parameters(checkpoint):,}"
        rows.append([safe(name), checkpoint.family.model_type, shape, size, safe(str(path))])
    print_tables(console(), [_table(["name", "family", "layers × width", ">parameters", "path"], rows)], paged=False)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A directory, a GGUF file, or a name from `tfm models`.")] = DEFAULT_MODEL,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens to reckon the KV cache for.")] = None,
) -> None:
    """Show a model's architecture, tensors and memory, without loading it."""
    from cli.render import show as print_tables
    from weights.load import open_weights, resolve

    checkpoint = open_weights(resolve(name, os.environ.get("TFM_PATH", "")))
    tables = [_architecture(checkpoint), _tensors(checkpoint), _memory(checkpoint, context)]
    print_tables(console(), tables, paged=False)


def _architecture(checkpoint: Checkpoint) -> Table:
    c, layer = checkpoint.config, checkpoint.config.layers[0]
    windows = sorted({layer.window for layer in c.layers if layer.window})
    mlp = f"{'gated' if c.gated else 'plain'} {c.activation}, {layer.mlp_width} wide"
    if layer.experts:
        mlp += f", {layer.experts.active} of {layer.experts.count} experts a token"
    order = "attention and MLP side by side" if "parallel" in c.residual else f"{c.residual} norm"
    parts = {
        "family": checkpoint.family.model_type,
        "vocabulary": f"{c.vocab_size}{', tied to the head' if c.tied else ''}",
        "context": str(c.context),
        "layers": f"{len(c.layers)}, {order}",
        "width": str(c.width),
        "norm": f"{c.norm.kind} norm, eps {c.norm.eps:g}",
        "positions": _positions(c),
        "attention": f"{c.heads} heads of {c.head_dim}, {c.kv_heads} of keys and values",
        "window": ", ".join(map(str, windows)) or "none",
        "mlp": mlp,
    }
    return _table(["part", "choice"], [list(part) for part in parts.items()])


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
    rows = [
        [safe(name), " × ".join(map(str, shape)), dtype, str(count), f"{count * math.prod(shape):,}"]
        for (name, shape, dtype), count in groups.items()
    ]
    rows.append(["all", "", "", str(len(checkpoint.entries)), f"{_parameters(checkpoint):,}"])
    return _table(["tensor", "shape", "dtype", ">of these", ">parameters"], rows)


def _memory(checkpoint: Checkpoint, context: int | None) -> Table:
    c = checkpoint.config
    length = context or c.context
    cells = sum(min(length, layer.window or length) for layer in c.layers) * 2 * c.kv_heads * c.head_dim
    weights = _parameters(checkpoint)
    sizes = {"weights": weights, f"KV cache of {length} tokens": cells, "both": weights + cells}
    rows = [[name, _bytes(2 * numbers), _bytes(4 * numbers)] for name, numbers in sizes.items()]
    return _table(["memory", ">16 bit", ">32 bit"], rows)


def _parameters(checkpoint: Checkpoint) -> int:
    return sum(math.prod(entry.shape) for entry in checkpoint.entries.values())


def _table(headings: list[str], rows: list[list[str]]) -> Table:
    """A heading that begins with > stands over numbers. The first column is repeated where a terminal is narrow."""
    from cli.render import Column, Table

    columns = [Column(h.removeprefix(">"), right=h.startswith(">"), label=h == headings[0]) for h in headings]
    return Table("", columns, rows)


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
