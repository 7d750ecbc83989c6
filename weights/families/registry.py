"""Every family by the name that config.json gives as `model_type`."""

from __future__ import annotations

from typing import Any

from transformer.config import Config
from transformer.errors import InputError
from weights.families import gpt2, llama
from weights.families.family import Family
from weights.families.foreign import Foreign

FAMILIES: dict[str, Family] = {module.FAMILY.model_type: module.FAMILY for module in (llama, gpt2)}


def read_config(values: dict[str, Any], source: str) -> tuple[Family, Config]:
    """The family of a config.json and what its decoder is made of."""
    foreign = Foreign(values, source)
    name = foreign.text("model_type")
    if name not in FAMILIES:
        raise InputError(f"{source}: model_type {name!r} is not supported, only {', '.join(FAMILIES)}")
    try:
        return FAMILIES[name], FAMILIES[name].read(foreign)
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
        values = family.write(config)
        if family.read(Foreign(values, family.model_type)) == config:
            return family, {"architectures": [family.architecture], "model_type": family.model_type, **values}
    raise AssertionError("the family 'tfm' takes every config")
