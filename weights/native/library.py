"""Builds the kernels for this machine into the user's cache, and finds them there."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.errors import EnvironmentFailed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SOURCE = Path(__file__).with_name("kernels.cpp")
HEADERS = tuple(Path(__file__).with_name(name) for name in ("products.h", "training.h"))
COMPILERS = ("c++", "g++", "clang++")
# Compiled with OpenMP but not linked against it: its functions are found in the runtime that torch has loaded,
# so that both use the same threads.
COMPILE = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-w", "-c")


def library_path() -> Path:
    """Where the library lies once built: named by the source, the flags and the processor it was built for."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfm"
    sources = b"".join(path.read_bytes() for path in (SOURCE, *HEADERS))
    made_from = sources + " ".join(COMPILE).encode() + _processor().encode()
    return cache / f"kernels-{hashlib.sha256(made_from).hexdigest()[:16]}.so"


def find_native() -> ctypes.CDLL | None:
    """The kernels, if they were built for this machine and this version."""
    path = library_path()
    if not path.is_file():
        return None
    try:
        return _load(path)
    except OSError:  # built against an OpenMP that this torch does not bring
        return None


def build_native() -> Path:
    path = library_path()
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), *COMPILERS))), None)
    if compiler is None:
        raise EnvironmentFailed(f"no C++ compiler found: looked for CXX, {', '.join(COMPILERS)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            object_file, library = Path(scratch) / "kernels.o", Path(scratch) / "kernels.so"
            _run(compiler, *COMPILE, str(SOURCE), "-o", str(object_file))
            _run(compiler, "-shared", str(object_file), "-o", str(library))
            _check(_load(library))
            library.replace(path)
    except OSError as error:
        raise EnvironmentFailed(f"the kernels could not be built: {error}") from None
    return path


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = next(iter(done.stderr.splitlines()), "no reason given")
        raise EnvironmentFailed(f"{command[0]} failed with {done.returncode}: {reason[:200]}")


def _load(path: Path) -> ctypes.CDLL:
    from transformer.native import declare  # and with it torch, whose OpenMP runtime the library needs
    from transformer.native_training import declare_training

    return declare_training(declare(ctypes.CDLL(str(path)), _torch_sgemm()))


def _torch_sgemm() -> int | None:
    """The product of many rows in MKL is hard to better, and a torch built with it lets others call it."""
    import torch

    try:
        own = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        return ctypes.cast(own.sgemm_, ctypes.c_void_p).value if torch.backends.mkl.is_available() else None
    except (OSError, AttributeError):
        return None


def _check(library: ctypes.CDLL) -> None:
    """A compiler that gets it wrong shall not be found out by the text."""
    import torch

    from transformer.native import NativeMatrix

    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(3, 100, generator=random), torch.randn(70, 100, generator=random)
    right = torch.allclose(NativeMatrix(library, None, numbers=weight)(x), x @ weight.t(), rtol=1e-4, atol=1e-4)
    if not (right and _trains_rightly(library)):
        raise EnvironmentFailed("the kernels were built but compute wrong numbers; they are not kept")


def _trains_rightly(library: ctypes.CDLL) -> bool:
    import torch

    from transformer.native import sgemm

    if sgemm(library).value is None:
        return True  # nobody will ask
    exact = _slopes(None, torch.float64)
    bounds = {torch.float32: 1e-4, torch.bfloat16: 1e-1}
    return all(
        torch.allclose(ours, theirs, rtol=0, atol=bound * float(theirs.abs().max()))
        for dtype, bound in bounds.items()
        for ours, theirs in zip(_slopes(library, dtype), exact, strict=True)
    )


def _slopes(library: ctypes.CDLL | None, dtype: torch.dtype) -> list[Tensor]:
    """Through all that trains: how a loss depends on what attention, gates and a norm were given."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    from transformer.loss import Told, cross_entropy
    from transformer.native_training import NativeAttention, NativeGate, NativeLoss, NativeNorm
    from transformer.train import Loss

    random = torch.Generator().manual_seed(0)
    qkv, both, gain = (torch.randn(shape, generator=random) for shape in ((2, 70, 96), (2, 70, 64), (32,)))
    targets = torch.arange(140) % 32
    leaves = [leaf.requires_grad_() for leaf in (qkv.to(dtype), both.to(dtype), gain)]
    loss_of: Loss = cross_entropy if library is None else NativeLoss(library)
    if library is not None:
        attended = NativeAttention(library, (2, 2, 16), [nn.Identity()] * 2, 0.0, 0.25)(leaves[0], None)
        normed = NativeNorm(library, 1e-6)(NativeGate(library)(leaves[1]).float(), leaves[2])
    else:
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in leaves[0].chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25).transpose(1, 2).flatten(2)
        gate, up = leaves[1].chunk(2, dim=-1)
        normed = F.rms_norm(F.silu(gate) * up, (32,), leaves[2].to(dtype), 1e-6)
    logits = (attended * normed).to(dtype).flatten(0, 1)
    told = Told(logits.detach().flip(-1).contiguous(), 0.5)
    (loss_of(logits, targets, None) + loss_of(logits, targets, told)).backward()
    return [leaf.grad.double() for leaf in leaves if leaf.grad is not None]


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return " ".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
