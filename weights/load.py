"""A name or path -> a model ready to use, with its tokenizer and its own settings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.errors import InputError
from weights.beside import Beside, content, read_beside
from weights.checkpoint import Checkpoint, load_model, open_checkpoint
from weights.families.foreign import Foreign
from weights.gguf.checkpoint import beside_gguf, open_gguf
from weights.gguf.file import read_gguf
from weights.native.library import find_native
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
    quantized: bool = False  # by us; a file may have eight bits or fewer of its own
    native: bool = False  # the compiled kernels run it

    @property
    def precision(self) -> str:
        """What it computes with, in words."""
        from transformer.int8 import Int8Linear

        dtype = str(self.model.dtype).removeprefix("torch.")
        coded = any(isinstance(module, Int8Linear) for module in self.model.modules())
        weights = "int8 weights, " if self.quantized else "the file's own codes, " if coded else ""
        return f"{weights}{dtype}{', compiled kernels' if self.native else ''}"


def available(search: str = "") -> Iterator[tuple[str, Path]]:
    """What can be named: the embedded models, then what lies under the search path, nearest first."""
    for root in [EMBEDDED, *(Path(part) for part in search.split(os.pathsep) if part)]:
        if root.is_dir():
            for path in sorted(root.iterdir()):
                if (path / "config.json").is_file() or path.suffix == ".gguf":
                    yield path.name, path


def resolve(name: str, search: str = "") -> Path:
    """The directory or GGUF file of a model given by path or by name."""
    path = Path(name)
    if path.is_dir() or (path.exists() and path.suffix == ".gguf"):
        return path
    if path.exists():
        if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
            raise InputError(f"{name}: pickle files can run code and are not read; need a directory with safetensors")
        raise InputError(f"{name}: neither a model directory nor a .gguf file")
    for known, path in available(search):
        if known == name:
            return path
    names = ", ".join(dict.fromkeys(known for known, _ in available(search))) or "none"
    raise InputError(f"{name}: no such model directory or GGUF file, and no model of that name (known: {names})")


def load(name: str, search: str = "", dtype: str = "auto", device: str = "auto", quantize: bool = False) -> Loaded:
    import torch

    from transformer.accelerate import accelerate

    path = resolve(name, search)
    checkpoint, beside = open_model(path)
    target = pick_device(device)
    settings = beside.generation_config
    to = _dtype(checkpoint, dtype, target)
    library = find_native() if target == "cpu" else None
    # Without the kernels a file's codes would become numbers at every product, which is slower than once for all.
    keep_codes = library is not None and to is torch.float32
    with ThreadPoolExecutor(1) as beside_the_weights:
        reading = beside_the_weights.submit(load_tokenizer, beside, checkpoint.config.vocab_size)
        model = load_model(checkpoint, to, target, quantize, keep_codes)
        tokenizer = reading.result()
    if library is not None:
        accelerate(model, library)
    return Loaded(
        name=path.name if name != str(path) else name,
        checkpoint=checkpoint,
        model=model,
        tokenizer=tokenizer,
        eos=_eos(settings, checkpoint),
        sampling=_sampling(settings),
        limit=settings.integer("max_new_tokens", None),
        template=_template(beside),
        quantized=quantize,
        native=library is not None,
    )


def open_weights(path: Path) -> Checkpoint:
    """What a directory or a GGUF file holds; no tensor is read."""
    return open_checkpoint(path) if path.is_dir() else open_gguf(read_gguf(path))


def open_model(path: Path) -> tuple[Checkpoint, Beside]:
    """The same with what stands beside the weights, a GGUF file's head being read once."""
    if path.is_dir():
        return open_checkpoint(path), read_beside(path)
    gguf = read_gguf(path)
    return open_gguf(gguf), beside_gguf(gguf)


def load_tokenizer(beside: Beside, vocab_size: int) -> Tokenizer:
    from transformer.tokenizer import Tokenizer

    own = beside.tokenizer_config
    tokenizer = Tokenizer.from_json(beside.tokenizer, beside.source)
    if tokenizer.size > vocab_size:
        raise InputError(f"{beside.source}: ids reach {tokenizer.size - 1}, the model's vocabulary has {vocab_size}")
    if own.values.get("add_bos_token") is True:
        tokenizer.bos = tokenizer.id(content(own.values.get("bos_token")) or "")
    return tokenizer


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


def _template(beside: Beside) -> ChatTemplate | None:
    from weights.chat import ChatTemplate

    if beside.template is None:
        return None
    own = beside.tokenizer_config.values
    tokens = {k: text for k, v in own.items() if k.endswith("_token") and isinstance(text := content(v), str)}
    return ChatTemplate(beside.template, tokens)


def pick_device(name: str) -> str:
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
    largest = sizes.most_common(1)[0][0]  # norms alone may be wider
    dtype: torch.dtype = getattr(torch, FLOATS.get(largest, "float32"))
    return dtype if dtype.itemsize >= 4 or device != "cpu" or _native(dtype) else torch.float32


def _native(dtype: torch.dtype) -> bool:
    import torch

    if dtype == torch.bfloat16:
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False
