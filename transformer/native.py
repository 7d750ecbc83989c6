"""The compiled library (built and found by `weights.native`): the structures it reads, and what stands in for parts.

It knows fp32 on the CPU; what is here knows no gradients. A part that has a native self asks whether it `takes`
an input and does its own work otherwise: nothing needs the library, and tests hold both equal.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from transformer.tap import FUSED, Tap

if TYPE_CHECKING:
    from transformer.cache import Step
    from transformer.position import Rotation

FEW = 8  # rows up to which a product is bound by reading weights
MANY = 1 << 20
SPAN = 256  # keys that attention takes at once
PARTS = 4  # of a long row of keys, at least
MULTIPLE = 16  # of numbers that a head must have: the widest register

POINTER, COUNT = ctypes.c_void_p, ctypes.c_int64


class Matrix(ctypes.Structure):
    _fields_ = [
        *((name, POINTER) for name in ("numbers", "codes", "scales", "offsets", "bias")),
        *((name, COUNT) for name in ("N", "K", "group")),
    ]


class Block(ctypes.Structure):
    _fields_ = [
        *((name, Matrix) for name in ("qkv", "out", "gate_up", "down")),
        *((name, POINTER) for name in ("attention_gain", "mlp_gain", "q_gain", "k_gain")),
        *((name, COUNT) for name in ("C", "H", "K", "D", "F", "half")),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
        ("activation", ctypes.c_int32),
    ]


class Pass(ctypes.Structure):
    _fields_ = [
        *((name, POINTER) for name in ("keys", "values")),
        *((name, COUNT) for name in ("row_stride", "head_stride", "M", "T", "parts", "part")),
        *((name, POINTER) for name in ("slots", "cos", "sin")),
        ("angles", COUNT),
    ]


class NativeMatrix:
    """The product with one matrix."""

    def __init__(self, library: ctypes.CDLL, bias: Tensor | None, **weights: Tensor | None):
        """`weights` are numbers (N, K), or codes (N, K), scales (N, G) and, perhaps, offsets (N, G)."""
        self.library, self.kept = library, (bias, weights)  # what is pointed to must not go away
        (self.N, self.K), *scales = (tensor.shape for tensor in weights.values() if tensor is not None)
        pointers = {name: pointer(tensor) for name, tensor in weights.items()}
        group = self.K // scales[0][1] if scales else self.K
        by_rows = bool(scales) and group == self.K and weights.get("offsets") is None
        # Many rows are multiplied in whole numbers, or by a product that torch brings.
        self.most = MANY if by_rows or sgemm(library).value else FEW
        self.struct = Matrix(**pointers, bias=pointer(bias), N=self.N, K=self.K, group=group)

    def takes(self, x: Tensor) -> bool:
        return readable(x) and x.numel() <= self.most * self.K

    def __call__(self, x: Tensor) -> Tensor:
        """x (..., K) -> (..., N)"""
        y = x.new_empty(*x.shape[:-1], self.N)
        rows = x.numel() // self.K
        self.library.tfm_linear(ctypes.byref(self.struct), x.data_ptr(), y.data_ptr(), rows, torch.get_num_threads())
        return y


class NativeBlocks:
    """All blocks of a decoder, one after the other."""

    def __init__(self, library: ctypes.CDLL, blocks: list[Block], most: int, kept: Any):
        self.library, self.most, self.kept = library, most, kept
        self.count, self.blocks = len(blocks), (Block * len(blocks))(*blocks)

    def takes(self, x: Tensor, step: Step, tap: Tap) -> bool:
        """Whether nobody watches."""
        return tap is FUSED and readable(x) and readable(step.cache.keys[0]) and x.shape[:2].numel() <= self.most

    def __call__(self, x: Tensor, step: Step, rotation: Rotation | None) -> Tensor:
        """x (B, T, C), which becomes the output."""
        keys, values = step.cache.keys, step.cache.values
        B, T = x.shape[:2]
        longest = step.longest + T
        # With many queries threads need not share one; with few they do, in parts long enough to get going.
        part = max(1, longest // (PARTS * SPAN)) * SPAN if B * T <= FEW else longest
        all_keys, all_values = _pointers(keys), _pointers(values)
        cos, sin = rotation or (None, None)
        new = Pass(
            ctypes.addressof(all_keys),
            ctypes.addressof(all_values),
            keys[0].stride(0),
            keys[0].stride(1),
            B * T,
            T,
            -(-longest // part),
            part,
            step.slots.data_ptr(),
            pointer(cos),
            pointer(sin),
            1 if cos is None else cos.shape[0] * cos.shape[1],
        )
        threads = torch.get_num_threads()
        self.library.tfm_blocks(self.blocks, self.count, ctypes.byref(new), x.data_ptr(), threads)
        return x


def declare(library: ctypes.CDLL, blas: int | None = None) -> ctypes.CDLL:
    """Tells ctypes what the library's functions take, and the library where a BLAS product in fp32 is, if one is."""
    library.tfm_linear.argtypes = [POINTER, POINTER, POINTER, COUNT, ctypes.c_int]
    library.tfm_blocks.argtypes = [POINTER, COUNT, POINTER, POINTER, ctypes.c_int]
    library.tfm_linear.restype = library.tfm_blocks.restype = None
    sgemm(library).value = blas
    return library


def sgemm(library: ctypes.CDLL) -> ctypes.c_void_p:
    return ctypes.c_void_p.in_dll(library, "tfm_sgemm")


def readable(x: Tensor) -> bool:
    return plain_floats(x) and not x.requires_grad


def plain_floats(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.device.type == "cpu" and x.is_contiguous()


def pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _pointers(tensors: list[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (POINTER * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
