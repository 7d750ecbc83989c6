"""Options that commands share. A flag beats its TFM_* variable."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from weights.load import Loaded

DEFAULT_MODEL = "fable"


class Dtype(StrEnum):
    auto = "auto"
    fp64 = "fp64"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class Quantize(StrEnum):
    int8 = "int8"


Model = Annotated[
    str,
    typer.Option("-m", "--model", envvar="TFM_MODEL", help="A directory, a GGUF file, or a name from `tfm models`."),
]
DtypeOption = Annotated[
    Dtype,
    typer.Option("--dtype", envvar="TFM_DTYPE", help="auto: the file's own where the hardware has it, else fp32."),
]
DeviceOption = Annotated[Device, typer.Option("--device", envvar="TFM_DEVICE", help="Where to compute.")]
QuantizeOption = Annotated[
    Quantize | None, typer.Option("--quantize", envvar="TFM_QUANTIZE", help="Weights in eight bits: smaller, faster.")
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", envvar="TFM_THREADS", min=1, max=1024, help="Default: the cores this process may use."),
]
PromptFile = Annotated[Path | None, typer.Option("--file", help="Read the text from a file.")]
NoStdin = Annotated[bool, typer.Option("--no-stdin", help="Never read stdin, even if it is a pipe.")]


def load_model(model: str, dtype: Dtype, device: Device, threads: int | None, quantize: Quantize | None) -> Loaded:
    """The model of a command's options, on as many threads as they ask for."""
    from cli.machine import set_threads
    from weights.load import load

    set_threads(threads)
    return load(model, os.environ.get("TFM_PATH", ""), dtype.value, device.value, quantize is not None)
