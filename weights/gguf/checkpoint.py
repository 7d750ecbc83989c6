"""A GGUF file as a checkpoint, with the tokenizer and settings that stand in it as well."""

from __future__ import annotations

import json
import struct
from typing import Any

from transformer.errors import InputError
from weights.beside import Beside
from weights.checkpoint import Checkpoint
from weights.families.family import Family
from weights.families.foreign import Foreign
from weights.families.registry import read_family
from weights.gguf.architectures import ARCHITECTURES, ROPE_FACTORS
from weights.gguf.file import Gguf, GgufFile
from weights.gguf.tokenizer import Vocabulary

# What the file calls a setting of ours, and the special tokens that a chat template may name.
SAMPLING = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}
SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def open_gguf(gguf: Gguf) -> Checkpoint:
    family = _family(gguf)
    config = read_family(family, _values(gguf))
    return Checkpoint(gguf.path, family, config, {}, {gguf.path: gguf.entries}, GgufFile)


def beside_gguf(gguf: Gguf) -> Beside:
    source, metadata = str(gguf.path), gguf.metadata
    vocabulary = Vocabulary(metadata, source)
    template = metadata.get("tokenizer.chat_template")
    sampling = {ours: metadata.get(f"general.sampling.{theirs}") for ours, theirs in SAMPLING.items()}
    return Beside(
        source=source,
        tokenizer=json.dumps(vocabulary.json()),
        tokenizer_config=Foreign({ours: vocabulary.text(theirs) for ours, theirs in SPECIAL.items()}, source),
        generation_config=Foreign({"eos_token_id": vocabulary.eos, **sampling}, source),
        template=template if isinstance(template, str) else None,
    )


def _family(gguf: Gguf) -> Family:
    parts = gguf.metadata.get("split.count", 1)
    if parts != 1:
        raise InputError(f"{gguf.path}: one of {parts!r:.20} parts of a model; join them, only whole files are read")
    name = Foreign(gguf.metadata, str(gguf.path)).text("general.architecture")
    if name not in ARCHITECTURES:
        raise InputError(f"{gguf.path}: architecture {name!r:.40} is not supported, only {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def _values(gguf: Gguf) -> Foreign:
    """The metadata of the architecture, the shapes of the tensors, and the numbers of those that describe rotation."""
    prefix = f"{gguf.metadata['general.architecture']}."
    values = {key.removeprefix(prefix): value for key, value in gguf.metadata.items() if key.startswith(prefix)}
    shapes = {name: list(entry.shape) for name, entry in gguf.entries.items()}
    return Foreign({**values, **_rope_factors(gguf), "tensors": shapes}, str(gguf.path))


def _rope_factors(gguf: Gguf) -> dict[str, Any]:
    factors = {}
    for name in ROPE_FACTORS:
        if entry := gguf.entries.get(name):
            if entry.dtype != "F32" or len(entry.shape) > 1:
                raise InputError(f"{gguf.path}: tensor {name} is {entry.dtype} {list(entry.shape)}, not a list of F32")
            with gguf.path.open("rb") as file:
                file.seek(entry.start)
                factors[name] = list(struct.unpack(f"<{entry.shape[0]}f", file.read(entry.stop - entry.start)))
    return factors
