"""Gives the parts of a loaded model their compiled selves, where the library has them."""

from __future__ import annotations

import ctypes
from typing import Any

from torch import nn

from transformer.attention import Attention
from transformer.config import Config
from transformer.int8 import Int8Linear
from transformer.linear import Linear
from transformer.mlp import GatedMLP
from transformer.model import Block, Transformer
from transformer.native import MULTIPLE, NativeBlocks, NativeMatrix, pointer, sgemm
from transformer.native import Block as BlockStruct
from transformer.native_training import NativeAttention, NativeGate, NativeNorm
from transformer.norm import RMSNorm

ACTIVATIONS = {"silu": 0, "gelu_tanh": 1, "gelu": 2, "relu": 3}


def accelerate(model: Transformer, library: ctypes.CDLL) -> None:
    """For inference in fp32 on the CPU; the weights must stay where they are."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.native = NativeMatrix(library, module.bias, numbers=module.weight)
        elif isinstance(module, Int8Linear):
            module.native = NativeMatrix(library, module.bias, **module.matrix._asdict())
    if all(_fits(block, model.config) for block in model.blocks):
        structs = [_struct(block, model.config) for block in model.blocks]
        most = min(m.native.most for m in model.blocks.modules() if isinstance(m, Linear | Int8Linear) and m.native)
        model.native = NativeBlocks(library, structs, most, list(model.parameters()))


def accelerate_training(model: Transformer, library: ctypes.CDLL) -> None:
    """What lies between matrix products, with gradients, in fp32 on the CPU. Needs the product that torch brings."""
    if sgemm(library).value is None:
        return
    for module in model.modules():
        if isinstance(module, RMSNorm) and _plain(module, module.eps):
            module.native = NativeNorm(library, module.eps)
        elif isinstance(module, GatedMLP) and model.config.activation == "silu":
            module.native = NativeGate(library)
        elif isinstance(module, Attention) and _attends_plainly(module, model.config):
            c, norms = model.config, [module.q_norm, module.k_norm]
            eps = 0.0 if c.qk_norm is None else c.qk_norm.eps
            module.native = NativeAttention(library, (c.heads, c.kv_heads, c.head_dim), norms, eps, module.scale)


def _attends_plainly(attention: Attention, config: Config) -> bool:
    """Whether the library knows such heads."""
    norm, norms = config.qk_norm, (attention.q_norm, attention.k_norm)
    known = norm is None or all(_plain(n, norm.eps) for n in norms)
    return known and config.clip_qkv is None and config.attention_softcap is None


def _fits(block: nn.Module, config: Config) -> bool:
    """Whether the library knows such a block: what most decoders of today are made of."""
    return (
        isinstance(block, Block)
        and config.residual == "pre"
        and config.residual_scale == 1.0
        and all(norm is None or _plain(norm, config.norm.eps) for norm in _norms(block, config))
        and config.alibi is None
        and config.clip_qkv is None
        and config.attention_softcap is None
        and config.layers[block.layer].window is None
        and config.head_dim % MULTIPLE == 0
        and isinstance(block.mlp, GatedMLP)
        and config.activation in ACTIVATIONS
        and len({layer.rope for layer in config.layers} - {None}) <= 1
        and len({layer.mlp_width for layer in config.layers}) == 1
    )


def _norms(block: Block, config: Config) -> list[Any]:
    of_heads = [block.attention.q_norm, block.attention.k_norm] if config.qk_norm else [None, None]
    return [block.attention_norm, block.mlp_norm, *of_heads]


def _plain(norm: nn.Module, eps: float) -> bool:
    """A gain for each number of what is normalised, and that eps."""
    return (
        type(norm) is RMSNorm
        and norm.weight is not None
        and norm.weight.ndim == 1
        and not norm.unit_offset
        and norm.eps == eps
    )


def _struct(block: Any, config: Config) -> BlockStruct:
    layer, matrices = config.layers[block.layer], (block.attention.qkv, block.attention.out)
    return BlockStruct(
        *(matrix.native.struct for matrix in (*matrices, block.mlp.gate_up, block.mlp.down)),
        *(norm and pointer(norm.weight) for norm in _norms(block, config)),
        config.width,
        config.heads,
        config.kv_heads,
        config.head_dim,
        layer.mlp_width,
        layer.rope.dim // 2 if layer.rope else 0,
        config.norm.eps,
        layer.attention_scale,
        ACTIVATIONS[config.activation],
    )
