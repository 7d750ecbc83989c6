"""What stands beside the weights: a tokenizer, the model's own settings, a chat template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.errors import InputError
from weights.families.foreign import Foreign
from weights.strict_json import MEGABYTE, read_json


@dataclass(frozen=True)
class Beside:
    source: str  # what to name when the tokenizer is at fault
    tokenizer: str  # tokenizer.json
    tokenizer_config: Foreign
    generation_config: Foreign
    template: str | None


def read_beside(path: Path) -> Beside:
    """The files of a model directory."""
    file = path / "tokenizer.json"
    read_json(file, limit=64 * MEGABYTE)  # refuses what the tokenizer library would stumble over
    own = _optional(path / "tokenizer_config.json")
    return Beside(
        source=str(file),
        tokenizer=_text(file),
        tokenizer_config=own,
        generation_config=_optional(path / "generation_config.json"),
        template=_template(path / "chat_template.jinja", own),
    )


def content(token: Any) -> str | None:
    """Special tokens are written as strings or as objects with their content."""
    return token.get("content") if isinstance(token, dict) else token


def _optional(path: Path) -> Foreign:
    return Foreign(read_json(path) if path.exists() else {}, str(path))


def _template(file: Path, own: Foreign) -> str | None:
    if file.exists():
        return _text(file)
    source: Any = own.values.get("chat_template")
    if isinstance(source, list):  # several templates by name
        source = next((t.get("template") for t in source if isinstance(t, dict) and t.get("name") == "default"), None)
    return source if isinstance(source, str) else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 at byte {error.start}") from None
