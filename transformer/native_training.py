"""What the compiled library does between the matrix products of a block in training, each with its way back.

In fp32 on the CPU. As with the rest of the library, a part asks whether its native self `takes` an input and does its
own work otherwise; tests hold both equal, the gradients as well.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transformer.native import COUNT, POINTER, plain_floats, pointer
from transformer.tap import Fused

if TYPE_CHECKING:
    from transformer.attention import Shared
    from transformer.position import Rotation

PIECES = 64  # into which the library divides rows where it adds up over all of them


class Heads(ctypes.Structure):
    _fields_ = [
        *((name, POINTER) for name in ("q_gain", "k_gain", "cos", "sin")),
        *((name, COUNT) for name in ("B", "T", "H", "K", "D", "half")),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    ]


class NativeNorm:
    """RMSNorm with a gain for each number."""

    def __init__(self, library: ctypes.CDLL, eps: float):
        self.library, self.eps = library, eps

    def takes(self, x: Tensor, gain: Tensor) -> bool:
        return plain_floats(x) and plain_floats(gain)

    def __call__(self, x: Tensor, gain: Tensor) -> Tensor:
        return _Norm.apply(x, gain, self)  # type: ignore[no-untyped-call]


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, norm: NativeNorm) -> Tensor:
        ctx.save_for_backward(x, gain)
        ctx.norm, y = norm, torch.empty_like(x)
        norm.library.tfm_rms_norm(*_norm_arguments(x, gain, norm), pointer(y), torch.get_num_threads())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        x, gain = ctx.saved_tensors
        slope = slope.contiguous()
        dx, dgain = torch.empty_like(x), gain.new_zeros(PIECES, *gain.shape)
        known = _norm_arguments(x, gain, ctx.norm)
        ctx.norm.library.tfm_rms_norm_back(*known, pointer(slope), pointer(dx), pointer(dgain), torch.get_num_threads())
        return dx, dgain.sum(0), None


def _norm_arguments(x: Tensor, gain: Tensor, norm: NativeNorm) -> tuple[Any, ...]:
    C = x.shape[-1]
    return pointer(x), pointer(gain), norm.eps, x.numel() // C, C


class NativeGate:
    """silu(gate) · up"""

    def __init__(self, library: ctypes.CDLL):
        self.library = library

    def takes(self, both: Tensor) -> bool:
        return plain_floats(both)

    def __call__(self, both: Tensor) -> Tensor:
        """Gates and ups (..., 2F) -> (..., F)"""
        return _Gate.apply(both, self.library)  # type: ignore[no-untyped-call]


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor, library: ctypes.CDLL) -> Tensor:
        ctx.save_for_backward(both)
        ctx.library, F = library, both.shape[-1] // 2
        y = both.new_empty(*both.shape[:-1], F)
        library.tfm_gate(pointer(both), y.numel() // F, F, pointer(y), torch.get_num_threads())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (both,) = ctx.saved_tensors
        slope, dboth, F = slope.contiguous(), torch.empty_like(both), slope.shape[-1]
        rows, threads = slope.numel() // F, torch.get_num_threads()
        ctx.library.tfm_gate_back(pointer(both), pointer(slope), rows, F, pointer(dboth), threads)
        return dboth, None


class NativeAttention:
    """Norms and rotation of heads, and causal attention of whole sequences."""

    def __init__(
        self, library: ctypes.CDLL, heads: tuple[int, int, int], norms: list[nn.Module], eps: float, scale: float
    ):
        """`heads` are H, K and D, `norms` those of queries and keys."""
        self.library, self.heads, self.norms, self.eps, self.scale = library, heads, norms, eps, scale

    def takes(self, qkv: Tensor, shared: Shared, layer: int) -> bool:
        """Whether nobody watches attention and nothing was there before."""
        mask = shared.masks[layer]
        plain = mask is not None and mask.plain and shared.step is None and shared.biases[layer] is None
        return plain and type(shared.tap).attend is Fused.attend and plain_floats(qkv)

    def __call__(self, qkv: Tensor, rotation: Rotation | None) -> Tensor:
        """qkv (B, T, (H + 2K)·D) -> (B, T, H·D)"""
        gains = (getattr(norm, "weight", None) for norm in self.norms)
        return _Attention.apply(qkv, *gains, *(rotation or (None, None)), self)  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        q_gain: Tensor | None,
        k_gain: Tensor | None,
        cos: Tensor | None,
        sin: Tensor | None,
        attention: NativeAttention,
    ) -> Tensor:
        H, _, D = attention.heads
        y, logs = qkv.new_empty(*qkv.shape[:2], H * D), qkv.new_empty(*qkv.shape[:2], H)
        ctx.save_for_backward(qkv, q_gain, k_gain, cos, sin, y, logs)
        ctx.attention = attention
        heads = _heads(attention, qkv, q_gain, k_gain, cos, sin)
        attention.library.tfm_attend(heads, pointer(qkv), pointer(y), pointer(logs), torch.get_num_threads())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        qkv, q_gain, k_gain, cos, sin, y, logs = ctx.saved_tensors
        _, K, D = ctx.attention.heads
        slope, dqkv, dgains = slope.contiguous(), torch.empty_like(qkv), qkv.new_zeros(qkv.shape[0] * K, 2, D)
        ctx.attention.library.tfm_attend_back(
            _heads(ctx.attention, qkv, q_gain, k_gain, cos, sin),
            *map(pointer, (qkv, y, logs, slope, dqkv, dgains)),
            torch.get_num_threads(),
        )
        dq_gain, dk_gain = (None, None) if q_gain is None else dgains.sum(0)
        return dqkv, dq_gain, dk_gain, None, None, None


def _heads(
    attention: NativeAttention,
    qkv: Tensor,
    q_gain: Tensor | None,
    k_gain: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Any:
    B, T, _ = qkv.shape
    half = 0 if cos is None else cos.shape[-1]
    tables = map(pointer, (q_gain, k_gain, cos, sin))
    return ctypes.byref(Heads(*tables, B, T, *attention.heads, half, attention.eps, attention.scale))


def declare_training(library: ctypes.CDLL) -> ctypes.CDLL:
    """Tells ctypes what the functions take."""
    threads, eps = ctypes.c_int, ctypes.c_float
    library.tfm_attend.argtypes = [*[POINTER] * 4, threads]
    library.tfm_attend_back.argtypes = [*[POINTER] * 7, threads]
    library.tfm_gate.argtypes = [POINTER, COUNT, COUNT, POINTER, threads]
    library.tfm_gate_back.argtypes = [POINTER, POINTER, COUNT, COUNT, POINTER, threads]
    library.tfm_rms_norm.argtypes = [POINTER, POINTER, eps, COUNT, COUNT, POINTER, threads]
    library.tfm_rms_norm_back.argtypes = [POINTER, POINTER, eps, COUNT, COUNT, POINTER, POINTER, POINTER, threads]
    for name in ("attend", "attend_back", "gate", "gate_back", "rms_norm", "rms_norm_back"):
        getattr(library, f"tfm_{name}").restype = None
    return library
