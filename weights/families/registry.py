"""Every family by the name that config.json gives as `model_type`."""

from __future__ import annotations

from typing import Any

from transformer.config import Config
from transformer.errors import InputError
from weights.families import (
    bloom,
    cohere,
    falcon,
    gemma,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    granite,
    llama,
    mistral,
    mixtral,
    olmo,
    olmo2,
    opt,
    phi,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
    smollm3,
    stablelm,
    tfm,
)
from weights.families.family import Family
from weights.families.foreign import Foreign

# A decoder trained here is written as the first that can describe it; the last can describe all.
FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        llama.FAMILY,
        qwen3.FAMILY,
        olmo2.FAMILY,
        gpt2.FAMILY,
        gpt_neox.FAMILY,
        opt.FAMILY,
        bloom.FAMILY,
        falcon.FAMILY,
        mistral.FAMILY,
        mixtral.FAMILY,
        qwen2.FAMILY,
        qwen3_moe.FAMILY,
        gemma.FAMILY,
        gemma2.FAMILY,
        gemma3.FAMILY,
        gemma3.WITH_IMAGES,
        phi.FAMILY,
        phi3.FAMILY,
        stablelm.FAMILY,
        olmo.FAMILY,
        smollm3.FAMILY,
        granite.FAMILY,
        cohere.FAMILY,
        tfm.FAMILY,
    )
}


def read_config(values: dict[str, Any], source: str) -> tuple[Family, Config]:
    """The family of a config.json and what its decoder is made of."""
    foreign = Foreign(values, source)
    name = foreign.text("model_type")
    if name not in FAMILIES:
        raise InputError(f"{source}: model_type {name!r:.60} is not supported, only {', '.join(FAMILIES)}")
    foreign.refuse("quantization_config", unless=None)
    return FAMILIES[name], read_family(FAMILIES[name], foreign)


def read_family(family: Family, foreign: Foreign) -> Config:
    """The config that a family makes of a file's values; whatever is wrong with them names the file."""
    source = foreign.source
    try:
        return family.read(foreign)
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(source) else f"{source}: {message}") from None
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        raise InputError(f"{source}: numbers that no decoder can have ({error})") from None


def write_config(config: Config) -> tuple[Family, dict[str, Any]]:
    """config.json for a decoder trained here: of the first family that reads it back unchanged."""
    for family in FAMILIES.values():
        if family.write is None:
            continue
        values = {"architectures": [family.architecture], "model_type": family.model_type, **family.write(config)}
        if _reads_as(family, values, config):
            return family, values
    raise AssertionError("the last family takes every config")


def _reads_as(family: Family, values: dict[str, Any], config: Config) -> bool:
    try:
        return family.read(Foreign(values, family.model_type)) == config
    except InputError:
        return False
