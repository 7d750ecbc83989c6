"""The same weights in every form the contenders read, made once in a scratch directory."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from weights.checkpoint import load_model, save_model
from weights.load import open_model

# What llama.cpp calls the formats it can write.
FORMATS = {"F32": 0, "Q8_0": 7, "Q4_0": 2}
# In a process of its own, because it writes pages to stderr. All matrices alike, the head included.
QUANTIZE = """
import sys, llama_cpp
source, target, kind = sys.argv[1:]
settings = llama_cpp.llama_model_quantize_default_params()
settings.ftype, settings.allow_requantize, settings.pure = int(kind), True, kind != "0"
sys.exit(llama_cpp.llama_model_quantize(source.encode(), target.encode(), settings))
"""


def have(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def as_directory(model: Path, work: Path) -> Path:
    """A model directory of the model's exact values in fp32."""
    if model.is_dir():
        return model
    import torch

    target = work / f"{model.stem}-fp32"
    if not (target / "model.safetensors").exists():
        target.mkdir(parents=True, exist_ok=True)
        checkpoint, beside = open_model(model)
        save_model(load_model(checkpoint, torch.float32), target, checkpoint.values)
        (target / "tokenizer.json").write_text(beside.tokenizer)
        for name in ("tokenizer_config", "generation_config"):
            values = {key: value for key, value in getattr(beside, name).values.items() if value is not None}
            (target / f"{name}.json").write_text(json.dumps(values))
    return target


def as_gguf(model: Path, work: Path) -> dict[str, Path]:
    """GGUF files by format, if llama.cpp is here to make them and there is one to make them of."""
    if model.suffix != ".gguf" or not have("llama_cpp"):
        return {}
    work.mkdir(parents=True, exist_ok=True)
    files = {name: work / f"{model.stem}-{name}.gguf" for name in FORMATS}
    for name, path in files.items():
        if not path.exists():
            source = model if name == "F32" else files["F32"]
            command = [sys.executable, "-c", QUANTIZE, str(source), str(path), str(FORMATS[name])]
            subprocess.run(command, check=True, capture_output=True)
    return files
