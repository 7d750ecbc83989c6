"""A tiny Llama with a tokenizer, as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.tiny import SPECIALS, TEMPLATE, tiny_tokenizer
from tests.weights.gguf.writer import write_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_level_metadata(vocab_size: int = 320) -> dict[str, Any]:
    model = json.loads(tiny_tokenizer(vocab_size).to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if token in SPECIALS else NORMAL for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }


def llama_metadata(**changes: Any) -> dict[str, Any]:
    values = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        **byte_level_metadata(),
    }
    return {**values, **{key.replace("__", "."): value for key, value in changes.items()}}


def llama_tensors(vocab_size: int = 320) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    shapes = {
        "token_embd": (vocab_size, 32),
        "blk.0.attn_norm": (32,),
        "blk.0.attn_q": (32, 32),
        "blk.0.attn_k": (16, 32),
        "blk.0.attn_v": (16, 32),
        "blk.0.attn_output": (32, 32),
        "blk.0.ffn_norm": (32,),
        "blk.0.ffn_gate": (64, 32),
        "blk.0.ffn_up": (64, 32),
        "blk.0.ffn_down": (32, 64),
        "output_norm": (32,),
    }
    return {f"{name}.weight": torch.randn(shape, generator=random) for name, shape in shapes.items()}


def write_llama(path: Path, **changes: Any) -> Path:
    return write_gguf(path, llama_metadata(**changes), llama_tensors())
