"""What a run starts from besides text: a decoder's description, a tokenizer, and the files that say so to others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from transformer.config import Config
from transformer.errors import InputError
from transformer.respell import spellings
from transformer.shape import Growth, larger
from transformer.tokenizer import Tokenizer
from weights.beside import Beside, content, read_beside
from weights.chat import ChatTemplate
from weights.conversations import SPECIALS, TEMPLATE
from weights.documents import SEPARATOR
from weights.families.registry import read_config, write_config
from weights.load import load_tokenizer, open_model
from weights.strict_json import read_json


@dataclass(frozen=True)
class Base:
    config: Config
    tokenizer: Tokenizer = field(repr=False)
    begin: tuple[int, ...]  # in front of every document
    end: tuple[int, ...]  # behind it, where the next one's beginning does not end it
    files: dict[str, Any]  # by name: what is JSON as its object, other things as text
    template: ChatTemplate | None = None


def borrowed_tokenizer(path: Path, chat: bool) -> tuple[Backend, int]:
    """That of a model, and the size of its vocabulary: what begins with both can learn from it."""
    checkpoint, beside = open_model(path)
    tokenizer = load_tokenizer(beside, checkpoint.config.vocab_size)
    for token in (SEPARATOR, *(SPECIALS if chat else ())):
        if token not in tokenizer.specials:
            raise InputError(f"{beside.source}: does not know {token}, which this text needs")
    return tokenizer.backend, checkpoint.config.vocab_size


def fresh_base(backend: Backend, config: Config, chat: bool) -> Base:
    """The separator of documents begins each of them, and so ends the one before."""
    tokenizer = Tokenizer(backend)
    separator = tokenizer.id(SEPARATOR)
    assert separator is not None
    ends = [separator, tokenizer.id(SPECIALS[1])] if chat else separator
    ids = {"bos_token_id": separator, "eos_token_id": ends}
    names = {"bos_token": SEPARATOR, "eos_token": SPECIALS[1] if chat else SEPARATOR}
    files: dict[str, Any] = {
        "config.json": write_config(config)[1] | ids,
        "generation_config.json": ids,
        "tokenizer.json": backend.to_str(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **names,
            "model_max_length": config.context,
        },
    }
    if chat:
        files["chat_template.jinja"] = TEMPLATE
    return Base(config, tokenizer, (separator,), (), files, ChatTemplate(TEMPLATE, names) if chat else None)


def base_of(path: Path) -> Base:
    """A model to go on with: its own description, tokenizer and settings, unchanged."""
    checkpoint, beside = open_model(path)
    return _described(path, checkpoint.config, checkpoint.values, beside)


def grown_base(base: Base, growth: Growth) -> Base:
    """The same for a model made larger: only what describes the decoder differs."""
    config = larger(base.config, growth)
    return base if config == base.config else _with_decoder(base, config)


def respelt_base(base: Base, other: Base) -> Base:
    """The one's decoder with the other's tokenizer, and with all that speaks of tokens."""
    return _with_decoder(other, replace(base.config, vocab_size=other.config.vocab_size))


def respelling(old: Base, new: Base) -> list[list[int]]:
    """By the new id, the old ids: documents begin and end with other tokens, which mean the same."""
    spelt = spellings(old.tokenizer, new.tokenizer)
    for id in new.begin:
        spelt[id] = list(old.begin)
    for id in new.end:
        spelt[id] = list(old.end or old.begin)
    return spelt


def _with_decoder(base: Base, config: Config) -> Base:
    ids = {key: value for key, value in base.files["config.json"].items() if key.endswith("_token_id")}
    files = base.files | {"config.json": write_config(config)[1] | ids}
    if "model_max_length" in (beside := base.files["tokenizer_config.json"]):
        files["tokenizer_config.json"] = beside | {"model_max_length": config.context}
    return replace(base, config=config, files=files)


def base_in(run: Path) -> Base:
    """The same of a run that may have no weights yet."""
    values = read_json(run / "config.json")
    return _described(run, read_config(values, str(run / "config.json"))[1], values, read_beside(run))


def _described(path: Path, config: Config, values: dict[str, Any], beside: Beside) -> Base:
    own = beside.tokenizer_config.values
    tokenizer = load_tokenizer(beside, config.vocab_size)
    names = {key: text for key, v in own.items() if key.endswith("_token") and isinstance(text := content(v), str)}
    bos, eos = (_id(values, tokenizer, names, kind) for kind in ("bos", "eos"))
    if bos is None and eos is None:
        raise InputError(f"{path}: names neither a bos nor an eos token to part documents with")
    begin = tuple(id for id in (eos if bos is None else bos,) if id is not None)
    end = tuple(id for id in (eos,) if id is not None and id not in begin)
    files: dict[str, Any] = {
        "config.json": values or write_config(config)[1],
        "tokenizer.json": beside.tokenizer,
        "tokenizer_config.json": own,
        "generation_config.json": beside.generation_config.values,
    }
    template = None
    if beside.template is not None:
        files["chat_template.jinja"] = beside.template
        template = ChatTemplate(beside.template, names)
    return Base(config, tokenizer, begin, end, files, template)


def _id(values: dict[str, Any], tokenizer: Tokenizer, names: dict[str, str], kind: str) -> int | None:
    """By the tokenizer's own word, else by the config's number."""
    if (name := names.get(f"{kind}_token")) is not None and (id := tokenizer.id(name)) is not None:
        return id
    number = values.get(f"{kind}_token_id")
    number = number[0] if isinstance(number, list) and number else number
    return number if type(number) is int and 0 <= number < tokenizer.size else None
