"""What the compiled library does between the matrix products of a block in training, each with its way back.

On the CPU, computed in fp32; what products in bf16 leave is read, and written, as it is. As with the rest of the
library, a part asks whether its native self `takes` an input and does its own work otherwise; tests hold both equal,
the gradients as well.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transformer.data import IGNORED
from transformer.loss import Told, cross_entropy
from transformer.native import COUNT, POINTER, plain_floats, pointer
from transformer.tap import Fused

if TYPE_CHECKING:
    from transformer.attention import Shared
    from transformer.position import Rotation

PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16"}
PIECES = 64  # into which the library divides rows where it adds up over all of them


class Heads(ctypes.Structure):
    _fields_ = [
        *((name, POINTER) for name in ("q_gain", "k_gain", "cos", "sin")),
        *((name, COUNT) for name in ("B", "T", "H", "K", "D", "half")),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    ]


def _plain(x: Tensor) -> bool:
    return x.dtype in PRECISIONS and x.device.type == "cpu" and x.is_contiguous()


def _function(library: ctypes.CDLL, name: str, x: Tensor) -> Any:
    """The one for numbers like x."""
    return getattr(library, f"tfm_{name}_{PRECISIONS[x.dtype]}")


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
        return _plain(both)

    def __call__(self, both: Tensor) -> Tensor:
        """Gates and ups (..., 2F) -> (..., F)"""
        return _Gate.apply(both, self.library)  # type: ignore[no-untyped-call]


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor, library: ctypes.CDLL) -> Tensor:
        ctx.save_for_backward(both)
        ctx.library, F = library, both.shape[-1] // 2
        y = both.new_empty(*both.shape[:-1], F)
        _function(library, "gate", both)(pointer(both), y.numel() // F, F, pointer(y), torch.get_num_threads())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (both,) = ctx.saved_tensors
        slope, dboth, F = slope.contiguous(), torch.empty_like(both), slope.shape[-1]
        rows, threads = slope.numel() // F, torch.get_num_threads()
        _function(ctx.library, "gate_back", both)(pointer(both), pointer(slope), rows, F, pointer(dboth), threads)
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
        mask, tables = shared.masks[layer], [*self._gains(), *(shared.rotations[layer] or ())]
        plain = mask is not None and mask.plain and shared.step is None and shared.biases[layer] is None
        plain = plain and all(table is None or plain_floats(table) for table in tables)
        return plain and type(shared.tap).attend is Fused.attend and _plain(qkv)

    def __call__(self, qkv: Tensor, rotation: Rotation | None) -> Tensor:
        """qkv (B, T, (H + 2K)·D) -> (B, T, H·D)"""
        return _Attention.apply(qkv, *self._gains(), *(rotation or (None, None)), self)  # type: ignore[no-untyped-call]

    def _gains(self) -> list[Tensor | None]:
        return [getattr(norm, "weight", None) for norm in self.norms]


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
        y, logs = qkv.new_empty(*qkv.shape[:2], H * D), qkv.new_empty(*qkv.shape[:2], H, dtype=torch.float32)
        ctx.save_for_backward(qkv, q_gain, k_gain, cos, sin, y, logs)
        ctx.attention = attention
        heads = _heads(attention, qkv, q_gain, k_gain, cos, sin)
        function = _function(attention.library, "attend", qkv)
        function(heads, pointer(qkv), pointer(y), pointer(logs), torch.get_num_threads())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        qkv, q_gain, k_gain, cos, sin, y, logs = ctx.saved_tensors
        _, K, D = ctx.attention.heads
        slope, dqkv, dgains = slope.contiguous(), torch.empty_like(qkv), torch.zeros(qkv.shape[0] * K, 2, D)
        _function(ctx.attention.library, "attend_back", qkv)(
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


class NativeLoss:
    """Cross entropy with the text, and with what a teacher says, summed over the targets that are not IGNORED."""

    def __init__(self, library: ctypes.CDLL):
        self.library = library

    def __call__(self, logits: Tensor, targets: Tensor, told: Told | None = None) -> Tensor:
        """Logits (N, V) and targets (N,)"""
        teacher, voice = told or (None, 0.0)
        known = teacher is None or (teacher.dtype in (logits.dtype, torch.uint8) and teacher.is_contiguous())
        if not (known and _plain(logits)):
            return cross_entropy(logits, targets, told)
        return _Loss.apply(logits, targets.contiguous(), teacher, voice, self.library)  # type: ignore[no-untyped-call]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, teacher: Tensor | None, voice: float, library: ctypes.CDLL
    ) -> Tensor:
        logs, teacher_logs, means = logits.new_zeros(3, len(logits), dtype=torch.float32)
        threads = torch.get_num_threads()
        _function(library, "log_sum", logits)(pointer(logits), *logits.shape, pointer(logs), threads)
        if teacher is not None:
            function, there = _function(library, _told(teacher), logits), map(pointer, (teacher_logs, means))
            function(pointer(logits), pointer(teacher), *logits.shape, *there, threads)
        ctx.save_for_backward(logits, targets, logs, teacher, teacher_logs)
        ctx.library, ctx.voice = library, voice
        learnt = targets != IGNORED
        return (logs - voice * means)[learnt].sum() - (1 - voice) * logits[learnt, targets[learnt]].float().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, targets, logs, teacher, teacher_logs = ctx.saved_tensors
        slopes, own = torch.empty_like(logits), (pointer(logits), pointer(logs))
        rest = (pointer(targets), slope.item(), *logits.shape, pointer(slopes), torch.get_num_threads())
        if teacher is None:
            _function(ctx.library, "cross_entropy_back", logits)(*own, *rest)
        else:
            theirs = (pointer(teacher), pointer(teacher_logs), ctx.voice)
            _function(ctx.library, f"{_told(teacher)}_back", logits)(*own, *theirs, *rest)
        return slopes, None, None, None, None


def _told(teacher: Tensor) -> str:
    return "told_noted" if teacher.dtype is torch.uint8 else "told"


def declare_training(library: ctypes.CDLL) -> ctypes.CDLL:
    """Tells ctypes what the functions take."""
    threads, number = ctypes.c_int, ctypes.c_float
    takes: dict[str, list[Any]] = {
        "rms_norm": [POINTER, POINTER, number, COUNT, COUNT, POINTER, threads],
        "rms_norm_back": [POINTER, POINTER, number, COUNT, COUNT, POINTER, POINTER, POINTER, threads],
        "to_codes": [POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, threads],
        "from_sums": [POINTER, POINTER, POINTER, COUNT, COUNT, POINTER, threads],
    }
    for precision in PRECISIONS.values():
        takes |= {
            f"attend_{precision}": [*[POINTER] * 4, threads],
            f"attend_back_{precision}": [*[POINTER] * 7, threads],
            f"gate_{precision}": [POINTER, COUNT, COUNT, POINTER, threads],
            f"gate_back_{precision}": [POINTER, POINTER, COUNT, COUNT, POINTER, threads],
            f"log_sum_{precision}": [POINTER, COUNT, COUNT, POINTER, threads],
            f"cross_entropy_back_{precision}": [*[POINTER] * 3, number, COUNT, COUNT, POINTER, threads],
        }
        for told in ("told", "told_noted"):
            takes[f"{told}_{precision}"] = [POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, threads]
            back = [*[POINTER] * 4, number, POINTER, number, COUNT, COUNT, POINTER, threads]
            takes[f"{told}_back_{precision}"] = back
    for name, arguments in takes.items():
        function = getattr(library, f"tfm_{name}")
        function.argtypes, function.restype = arguments, None
    return library
