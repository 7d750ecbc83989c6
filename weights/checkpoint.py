"""A model directory in Hugging Face layout <-> Config and tensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.config import Config
from transformer.errors import InputError
from weights.coded import codes_of, homes_of_codes, multiplied_as
from weights.families.family import Family, unchanged
from weights.families.registry import read_config, write_config
from weights.memory import EightBits, Plain, Room, one_thread
from weights.names import check, steps, tied_head, with_prefix, without_prefix
from weights.strict_json import read_json
from weights.tensorfile import Entry, Stored, TensorFile, read_header

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from transformer.model import Transformer

INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
BLOCK = 1 << 23  # bytes copied or compared at once, and then given back


@dataclass(frozen=True)
class Checkpoint:
    """What a directory holds, known from its JSON and headers alone. No torch was needed for it."""

    path: Path
    family: Family
    config: Config
    values: dict[str, Any]  # config.json as it stands, if there is one
    files: dict[Path, dict[str, Entry]]
    reader: type[TensorFile] = TensorFile

    @property
    def entries(self) -> dict[str, Entry]:
        return {name: entry for entries in self.files.values() for name, entry in entries.items()}


def open_checkpoint(path: Path) -> Checkpoint:
    values = read_json(path / "config.json")
    family, config = read_config(values, str(path / "config.json"))
    checkpoint = Checkpoint(path, family, config, values, _headers(path))
    numbers = sum(math.prod(entry.shape) for entry in checkpoint.entries.values())
    if (least := _least(config)) > 4 * numbers:  # nothing that large shall be built to find out what is missing
        raise InputError(f"{path / 'config.json'}: a decoder of at least {least} numbers, its tensors hold {numbers}")
    return checkpoint


def _headers(path: Path) -> dict[Path, dict[str, Entry]]:
    whole, index = path / "model.safetensors", path / INDEX
    if whole.exists():
        return {whole: read_header(whole)}
    if not index.exists():
        for file in sorted(path.iterdir()):
            if file.suffix in PICKLES:
                raise InputError(f"{file}: pickle files can run code and are not read; need safetensors")
        raise InputError(f"{path}: neither {whole.name} nor {INDEX}")
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise InputError(f"{index}: weight_map is missing")
    for shard in names.values():
        if not isinstance(shard, str) or not re.fullmatch(r"[\w.\-]+\.safetensors", shard, re.ASCII):
            raise InputError(f"{index}: shard {shard!r:.80} is not the name of a file beside it")
    shards = {shard: read_header(path / shard) for shard in sorted(set(names.values()))}
    for name, shard in names.items():
        if name not in shards[shard]:
            raise InputError(f"{index}: tensor {name!r:.80} is not among the {len(shards[shard])} of {shard}")
    holders: dict[str, str] = {}
    for shard, entries in shards.items():
        for name in entries:
            if holders.setdefault(name, shard) != shard:
                raise InputError(f"{path / shard}: tensor {name} stands in {holders[name]} as well")
    return {path / shard: entries for shard, entries in shards.items()}


def _least(config: Config) -> int:
    """How many numbers the matrices hold that every decoder has."""
    mlps = sum(layer.mlp_width * (layer.experts.count if layer.experts else 1) for layer in config.layers)
    attention = len(config.layers) * config.head_dim * (config.heads + config.kv_heads)
    positions = config.context if config.position_embedding == "learned" else 0
    embed = config.vocab_size * (config.embed_width or config.width)
    return embed + config.width * (2 * mlps + 2 * attention + positions)


@one_thread()
def load_model(
    checkpoint: Checkpoint,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
    quantize: bool = False,
    keep_codes: bool = False,
) -> Transformer:
    """The decoder with its weights, read some rows at a time and given back to the system at once.

    `dtype` None keeps the precision of the file; `quantize` makes the matrices eight bits wide; `keep_codes` leaves
    those as they are that the file has as codes."""
    import torch

    from transformer.int8 import Int8Embedding, matrices, replace_matrix
    from transformer.model import Transformer
    from transformer.pieces import pieces

    family, config = checkpoint.family, checkpoint.config
    with torch.device("meta"):
        model = Transformer(config)
    meta = dict(model.named_parameters())
    known = {piece.name: piece for piece in pieces(model)}
    shapes = {name: piece.of(meta[piece.parameter]) for name, piece in known.items()}
    opened = [checkpoint.reader(path, entries) for path, entries in checkpoint.files.items()]
    files = {name: file for file in opened for name in file.entries}
    stored = {bare: Stored(files[name], name) for bare, name in without_prefix(family, files, checkpoint.path).items()}
    plan = list(steps(family, config, known, stored))
    check(family, config, plan, shapes, stored, checkpoint.path)
    if config.tied and (head := stored.get(tied_head(family))) is not None:
        _equal(next(stored[step.theirs[0]] for step in plan if step.ours == ["embed.weight"]), head)

    room = Room(device)
    eight = {name: EightBits(room, shape) for name, shape in matrices(model).items()} if quantize else {}
    coded = homes_of_codes(model, plan, known, stored, room) if keep_codes and not quantize else {}
    plain: dict[str, Plain] = {}
    for step in plan:
        if multiplied_as(step.ours[0], known, config) in coded:
            for name, codes in codes_of(step, config, stored):
                coded[multiplied_as(name, known, config)].keep(known[name], codes)
            continue
        sources = [stored[name].tensor() for name in step.theirs]
        for name, tensor in zip(step.ours, step.rule.load(config, sources), strict=True):
            parameter = known[name].parameter
            if parameter not in eight and parameter not in plain:
                plain[parameter] = Plain(room, meta[parameter].shape, dtype or tensor.dtype)
            for start, rows in _in_blocks(tensor):
                (eight.get(parameter) or plain[parameter]).write(known[name], start, rows)
                if step.rule.load is unchanged:
                    stored[step.theirs[0]].forget((start + len(rows)) / len(tensor))
        for name in step.theirs:
            stored[name].forget()
    if quantize and config.tied:
        for start, rows in _in_blocks(plain["embed.weight"].tensor):
            eight["head.weight"].write(known["embed.weight"], start, rows)
    model.load_state_dict({name: home.tensor for name, home in plain.items()}, assign=True, strict=False)
    model.tie()
    for name, home in (eight | coded).items():
        replace_matrix(model, name, home.matrix)
    if config.tied and "head.weight" in coded:
        model.embed = Int8Embedding(coded["head.weight"].matrix)  # type: ignore[assignment]
    return model.eval().requires_grad_(False)


def _in_blocks(tensor: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Some rows at a time, with the number of the first."""
    rows = _rows(tensor)
    return ((start, tensor[start : start + rows]) for start in range(0, len(tensor), rows))


def _equal(embed: Stored, head: Stored) -> None:
    """A head that the config ties to the embedding may be stored once more, but not as something else."""
    import torch

    a, b = embed.tensor(), head.tensor()
    same = a.dtype == b.dtype and a.shape == b.shape
    for start in range(0, len(a), rows := _rows(a)):
        same = same and torch.equal(a[start : start + rows], b[start : start + rows])
        embed.forget(start / len(a))
        head.forget(start / len(a))
    if not same:
        raise InputError(f"{head.file.path}: {head.name} is not {embed.name}, though tie_word_embeddings says so")


def _rows(tensor: Tensor) -> int:
    """As many as make a block."""
    return max(1, BLOCK * len(tensor) // max(1, tensor.nbytes))


def save_model(model: Transformer, path: Path, values: dict[str, Any] | None = None) -> None:
    """Writes config.json and model.safetensors. `values` is the config.json the model came with, if it did."""
    from safetensors.torch import save_file

    from transformer.pieces import pieces

    if values:
        values = values.get("text_config", values)  # of a model for more than text, only what writes it is saved
        family, _ = read_config(values, str(path))
    else:
        family, values = write_config(model.config)
    parameters = dict(model.named_parameters())
    ours = {piece.name: piece.of(parameters[piece.parameter].detach()) for piece in pieces(model)}
    tensors: dict[str, Tensor] = {}
    for theirs, names, rule in steps(family, model.config, ours):
        for name, tensor in zip(theirs, rule.save(model.config, [ours[n] for n in names]), strict=True):
            tensors[with_prefix(family, name)] = tensor.contiguous()
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    own = {key: value for key, value in values.items() if key != "torch_dtype"}
    text = json.dumps({**own, "architectures": [family.architecture], "dtype": dtype}, indent=2) + "\n"
    (path / "config.json").write_text(text)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
