"""A name or path -> a model ready to use, with its tokenizer and its own settings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.errors import InputError
from weights.checkpoint import Checkpoint, load_model, open_checkpoint
from weights.families.foreign import Foreign
from weights.strict_json import MEGABYTE, read_json
from weights.tensorfile import FLOATS

if TYPE_CHECKING:
    import torch

    from transformer.model import Transformer
    from transformer.tokenizer import Tokenizer
    from weights.chat import ChatTemplate

EMBEDDED = Path(__file__).parent
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


@dataclass(frozen=True)
class Loaded:
    name: str
    checkpoint: Checkpoint
    model: Transformer
    tokenizer: Tokenizer
    eos: frozenset[int]
    sampling: dict[str, float]  # what the model itself recommends
    limit: int | None  # tokens to write, if the model recommends a number
    template: ChatTemplate | None


def available(search: str = "") -> Iterator[tuple[str, Path]]:
    """What can be named: the embedded models, then the directories under the search path, nearest first."""
    for root in [EMBEDDED, *(Path(part) for part in search.split(os.pathsep) if part)]:
        if root.is_dir():
            for path in sorted(root.iterdir()):
                if (path / "config.json").is_file():
                    yield path.name, path


def resolve(name: str, search: str = "") -> Path:
    """The directory of a model given by path or by name."""
    path = Path(name)
    if path.is_dir():
        return path
    if path.exists():
        if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
            raise InputError(f"{name}: pickle files can run code and are not read; need a directory with safetensors")
        raise InputError(f"{name}: not a model directory")
    for known, path in available(search):
        if known == name:
            return path
    names = ", ".join(dict.fromkeys(known for known, _ in available(search))) or "none"
    raise InputError(f"{name}: no such model directory, and no model of that name (known: {names})")


def load(name: str, search: str = "", dtype: str = "auto", device: str = "auto") -> Loaded:
    path = resolve(name, search)
    checkpoint = open_checkpoint(path)
    target = _device(device)
    tokenizer = load_tokenizer(path, checkpoint.config.vocab_size)
    settings = _optional(path / "generation_config.json")
    model = load_model(checkpoint, _dtype(checkpoint, dtype, target), target)
    return Loaded(
        name=path.name if name != str(path) else name,
        checkpoint=checkpoint,
        model=model,
        tokenizer=tokenizer,
        eos=_eos(settings, checkpoint),
        sampling=_sampling(settings),
        limit=settings.integer("max_new_tokens", None),
        template=_template(path),
    )


def load_tokenizer(path: Path, vocab_size: int) -> Tokenizer:
    from transformer.tokenizer import Tokenizer

    file = path / "tokenizer.json"
    read_json(file, limit=64 * MEGABYTE)  # refuses what the tokenizer library would stumble over
    own = _optional(path / "tokenizer_config.json")
    tokenizer = Tokenizer.from_json(file.read_text(encoding="utf-8"), str(file))
    if tokenizer.size > vocab_size:
        raise InputError(f"{file}: its ids reach {tokenizer.size - 1}, the model's vocabulary has {vocab_size}")
    if own.values.get("add_bos_token") is True:
        tokenizer.bos = tokenizer.id(_content(own.values.get("bos_token")) or "")
    return tokenizer


def _content(token: Any) -> str | None:
    """Special tokens are written as strings or as objects with their content."""
    return token.get("content") if isinstance(token, dict) else token


def _optional(path: Path) -> Foreign:
    return Foreign(read_json(path) if path.exists() else {}, str(path))


def _eos(settings: Foreign, checkpoint: Checkpoint) -> frozenset[int]:
    text = checkpoint.values.get("text_config") or {}
    for source in (settings.values, checkpoint.values, text):
        ids = source.get("eos_token_id")
        if ids is not None:
            ids = ids if isinstance(ids, list) else [ids]
            if not all(type(i) is int for i in ids):
                raise InputError(f"{settings.source}: eos_token_id must be whole numbers, got {ids!r:.60}")
            return frozenset(ids)
    return frozenset()


def _sampling(settings: Foreign) -> dict[str, float]:
    values: dict[str, float] = {key: settings.number(key) for key in SAMPLING if settings.has(key)}
    if "top_k" in values:
        values["top_k"] = settings.integer("top_k")
    if settings.flag("do_sample", True) is False:
        values["temperature"] = 0.0
    return values


def _template(path: Path) -> ChatTemplate | None:
    from weights.chat import ChatTemplate

    own = _optional(path / "tokenizer_config.json")
    file = path / "chat_template.jinja"
    source: Any = file.read_text(encoding="utf-8") if file.exists() else own.values.get("chat_template")
    if isinstance(source, list):  # several templates by name
        source = next((t.get("template") for t in source if isinstance(t, dict) and t.get("name") == "default"), None)
    if not isinstance(source, str):
        return None
    tokens = {k: text for k, v in own.values.items() if k.endswith("_token") and isinstance(text := _content(v), str)}
    return ChatTemplate(source, tokens)


def _device(name: str) -> str:
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return next(device for device in ("cuda", "mps", "cpu") if there[device])
    if not there[name]:
        raise InputError(f"--device {name}: torch finds no such device here")
    return name


def _dtype(checkpoint: Checkpoint, name: str, device: str) -> torch.dtype:
    """ "auto" is the file's own precision where the hardware multiplies it natively, else fp32."""
    import torch

    if name != "auto":
        return {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
    sizes: Counter[str] = Counter()
    for entry in checkpoint.entries.values():
        sizes[entry.dtype] += (entry.stop - entry.start) * (entry.dtype in FLOATS)
    dtype: torch.dtype = getattr(torch, FLOATS[sizes.most_common(1)[0][0]])  # norms alone may be wider
    return dtype if dtype.itemsize >= 4 or device != "cpu" or _native(dtype) else torch.float32


def _native(dtype: torch.dtype) -> bool:
    import torch

    if dtype == torch.bfloat16:
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False
