"""A model directory in Hugging Face layout <-> Config and tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.config import Config
from transformer.errors import InputError
from weights.families.family import Family, Tensors
from weights.families.registry import read_config, write_config
from weights.strict_json import read_json
from weights.tensorfile import Entry, TensorFile, read_header

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from transformer.model import Transformer

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """What a directory holds, known from its JSON and headers alone. No torch was needed for it."""

    path: Path
    family: Family
    config: Config
    values: dict[str, Any]  # config.json as it stands
    files: dict[Path, dict[str, Entry]]

    @property
    def entries(self) -> dict[str, Entry]:
        return {name: entry for entries in self.files.values() for name, entry in entries.items()}


def open_checkpoint(path: Path) -> Checkpoint:
    values = read_json(path / "config.json")
    family, config = read_config(values, str(path / "config.json"))
    files = {file: read_header(file) for file in _tensor_files(path)}
    seen: dict[str, Path] = {}
    for file, entries in files.items():
        for name in entries:
            if name in seen:
                raise InputError(f"{file}: tensor {name} stands in {seen[name].name} as well")
            seen[name] = file
    return Checkpoint(path, family, config, values, files)


def _tensor_files(path: Path) -> list[Path]:
    if (path / "model.safetensors").exists():
        return [path / "model.safetensors"]
    if not (path / INDEX).exists():
        pickles = [p.name for p in sorted(path.iterdir()) if p.suffix in (".bin", ".pt", ".pth", ".ckpt")]
        if pickles:
            raise InputError(f"{path / pickles[0]}: pickle files can run code and are not read; need safetensors")
        raise InputError(f"{path}: neither model.safetensors nor {INDEX}")
    index = read_json(path / INDEX)
    names = index.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise InputError(f"{path / INDEX}: weight_map is missing")
    for shard in names.values():
        if not isinstance(shard, str) or not re.fullmatch(r"[\w.\-]+\.safetensors", shard, re.ASCII):
            raise InputError(f"{path / INDEX}: shard {shard!r:.80} is not the name of a file beside it")
    shards = {shard: read_header(path / shard) for shard in sorted(set(names.values()))}
    for name, shard in names.items():
        if name not in shards[shard]:
            raise InputError(f"{path / INDEX}: tensor {name} is not in {shard}, which has {len(shards[shard])}")
    return [path / shard for shard in shards]


def load_model(checkpoint: Checkpoint, dtype: torch.dtype | None = None, device: str = "cpu") -> Transformer:
    """The decoder with its weights: memory-mapped where they can stay as they are, else copied one by one.

    `dtype` None keeps the precision of the file."""
    import torch

    from transformer.model import Transformer
    from transformer.pieces import pieces

    with torch.device("meta"):
        model = Transformer(checkpoint.config)
    meta = dict(model.named_parameters())
    known = {piece.name: piece for piece in pieces(model)}
    shapes = {name: piece.of(meta[piece.parameter]) for name, piece in known.items()}
    plan = list(_plan(checkpoint, shapes))
    _check(checkpoint, plan, shapes)
    stored = {name: file for file in map(TensorFile, checkpoint.files) for name in file.entries}
    full = _full_names(checkpoint)

    state: dict[str, Tensor] = {}
    for theirs, ours, rule in plan:
        sources = [stored[full[name]].tensor(full[name]) for name in theirs]
        for name, tensor in zip(ours, rule.load(checkpoint.config, sources), strict=True):
            piece = known[name]
            shape, wanted = meta[piece.parameter].shape, dtype or tensor.dtype
            if tensor.shape == shape and tensor.dtype == wanted and tensor.is_contiguous():
                state[piece.parameter] = tensor.to(device)
                continue
            if piece.parameter not in state:
                state[piece.parameter] = torch.empty(shape, dtype=wanted, device=device)
            piece.of(state[piece.parameter]).copy_(tensor)
            for source in theirs:
                stored[full[source]].forget(full[source])
    model.load_state_dict(state, assign=True, strict=False)
    model.tie()
    return model.eval().requires_grad_(False)


def save_model(model: Transformer, path: Path, values: dict[str, Any] | None = None) -> None:
    """Writes config.json and model.safetensors. `values` is the config.json the model came with, if it did."""
    from safetensors.torch import save_file

    from transformer.pieces import pieces

    if values is None:
        family, values = write_config(model.config)
    else:
        family, _ = read_config(values, str(path))
    parameters = dict(model.named_parameters())
    ours = {piece.name: piece.of(parameters[piece.parameter].detach()) for piece in pieces(model)}
    tensors: dict[str, Tensor] = {}
    for theirs, names, rule in _instances(family, model.config, ours):
        for name, tensor in zip(theirs, rule.save(model.config, [ours[n] for n in names]), strict=True):
            head = name.startswith(family.headless)
            tensors[name if head else family.prefix + name] = tensor.contiguous()
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    text = json.dumps({**values, "dtype": dtype}, indent=2) + "\n"
    (path / "config.json").write_text(text)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def _instances(
    family: Family, config: Config, ours: dict[str, Tensor]
) -> Iterator[tuple[list[str], list[str], Tensors]]:
    """The family's rules spelled out for every layer, expert, weight and bias that this decoder has."""
    for rule in family.tensors:
        template = " ".join((*rule.theirs, *rule.ours))
        for i in range(len(config.layers) if "{i}" in template else 1):
            experts = config.layers[i].experts
            for e in range(experts.count if experts and "{e}" in template else 1):
                for kind in (".weight", ".bias"):
                    names = [name.format(i=i, e=e) + kind for name in rule.ours]
                    if all(name in ours for name in names):
                        yield [name.format(i=i, e=e) + kind for name in rule.theirs], names, rule


def _plan(checkpoint: Checkpoint, shapes: dict[str, Tensor]) -> Iterator[tuple[list[str], list[str], Tensors]]:
    """What to read for which pieces. Where two rules could make a piece, the one whose tensors are there."""
    made: set[str] = set()
    names = _full_names(checkpoint)
    rules = list(_instances(checkpoint.family, checkpoint.config, shapes))
    for theirs, ours, rule in sorted(rules, key=lambda r: not all(name in names for name in r[0])):
        if not made.intersection(ours):
            made.update(ours)
            yield theirs, ours, rule
    assert made == set(shapes), f"{checkpoint.family.model_type} cannot name {sorted(set(shapes) - made)}"


def _full_names(checkpoint: Checkpoint) -> dict[str, str]:
    """Names without the base model's prefix -> names as they stand in the file."""
    return {name.removeprefix(checkpoint.family.prefix): name for name in checkpoint.entries}


def _check(checkpoint: Checkpoint, plan: list[tuple[list[str], list[str], Tensors]], shapes: dict[str, Tensor]) -> None:
    """Every tensor the decoder needs is there, has the right shape, and no other is."""
    entries = checkpoint.entries
    left = _full_names(checkpoint)
    for theirs, ours, rule in plan:
        wanted = rule.save(checkpoint.config, [shapes[name] for name in ours])
        for name, tensor in zip(theirs, wanted, strict=True):
            if name not in left:
                raise InputError(f"{checkpoint.path}: tensor {name} is missing, {len(entries)} others are there")
            found = entries[left.pop(name)].shape
            if found != tuple(tensor.shape):
                raise InputError(
                    f"{checkpoint.path}: tensor {name} has shape {list(found)}, config.json needs {list(tensor.shape)}"
                )
    family = checkpoint.family
    unknown = [
        name
        for name in left
        if not any(re.fullmatch(pattern, name) for pattern in family.ignored)
        and not (checkpoint.config.tied and name.startswith(family.headless))
    ]
    if unknown:
        raise InputError(
            f"{checkpoint.path}: {len(unknown)} of {len(entries)} tensors unknown to {family.model_type}: {unknown[0]}"
        )
