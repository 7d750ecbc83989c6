"""Each architecture against transformers: a tiny random model, turned into GGUF the way llama.cpp's converter does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from tests.weights.gguf.models import byte_level_metadata, llama_metadata, llama_tensors, write_llama
from tests.weights.gguf.writer import write_gguf
from transformer.config import Rope
from transformer.errors import InputError
from weights.checkpoint import load_model, save_model
from weights.gguf.checkpoint import open_gguf
from weights.gguf.file import read_gguf
from weights.load import load, open_weights

SHAPE: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.5],
    "long_factor": [1.0, 2.0, 3.0, 4.0],
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 32}
GEMMA = {"head_dim": 16, "hidden_activation": "gelu_pytorch_tanh"}
LOCAL = ["sliding_attention", "full_attention", "sliding_attention"]

NAMES = {  # transformers -> GGUF, the same for every architecture that uses them
    "embed_tokens": "token_embd", "embed_in": "token_embd", "wte": "token_embd", "wpe": "position_embd",
    "norm": "output_norm", "ln_f": "output_norm", "final_layer_norm": "output_norm",
    "lm_head": "output", "embed_out": "output",
    "input_layernorm": "attn_norm", "ln_1": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "attn.c_proj": "attn_output", "attention.dense": "attn_output",
    "self_attn.qkv_proj": "attn_qkv", "attn.c_attn": "attn_qkv", "attention.query_key_value": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "ln_2": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
}  # fmt: skip


def name_of(theirs: str, sandwich: bool) -> str:
    path, _, leaf = theirs.rpartition(".")
    parts = [part for part in path.split(".") if part not in ("model", "transformer", "gpt_neox", "layers", "h")]
    layer = parts.pop(0) if parts[0].isdigit() else None
    part = ".".join(parts)
    ours = "post_attention_norm" if sandwich and part == "post_attention_layernorm" else NAMES[part]
    return (f"blk.{layer}." if layer else "") + f"{ours}.{leaf}"


def permuted(x: Tensor, heads: int) -> Tensor:
    """The converter's order of rows for interleaved rotary pairs."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """NeoX keeps q, k and v head by head; the converter puts all q first."""
    return x.reshape(heads, 3, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def converted(model: Any, architecture: str) -> dict[str, Tensor]:
    config = model.config
    tensors = {}
    for theirs, x in model.state_dict().items():
        if theirs == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if theirs.endswith((".attn.bias", ".masked_bias")):
            continue
        name = name_of(theirs, architecture in ("gemma2", "gemma3"))
        if architecture == "llama" and "attn_q." in name:
            x = permuted(x, config.num_attention_heads)
        if architecture == "llama" and "attn_k." in name:
            x = permuted(x, config.num_key_value_heads)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            x = x + 1
        if architecture == "gpt2" and x.ndim == 2 and name.startswith("blk"):
            x = x.t()
        if architecture == "gptneox" and "attn_qkv" in name:
            x = split_heads(x, config.num_attention_heads)
        tensors[name] = x.contiguous()
    return tensors


def metadata_of(config: Any, architecture: str) -> dict[str, Any]:
    values = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": getattr(config, "intermediate_size", 4 * config.hidden_size),
        "attention.head_count": config.num_attention_heads,
        "rope.freq_base": 10_000.0,
    }
    if architecture in ("gpt2", "gptneox"):
        values["attention.layer_norm_epsilon"] = 1e-5
    else:
        values["attention.layer_norm_rms_epsilon"] = config.rms_norm_eps
        values["attention.head_count_kv"] = config.num_key_value_heads
    if getattr(config, "head_dim", None):
        values["attention.key_length"] = values["attention.value_length"] = config.head_dim
    return {"general.architecture": architecture, **{f"{architecture}.{key}": value for key, value in values.items()}}


def tiny(name: str, **own: Any) -> Any:
    """A random model of that class, its vectors moved off zero and one so that none can be forgotten."""
    config_class = {"Gemma3": "Gemma3TextConfig"}.get(name, f"{name}Config")
    model_class = {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**{**SHAPE, **own})).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.2 if parameter.ndim == 1 else 0.0, 0.2)
    return model


def divisors() -> Tensor:
    """What llama.cpp's converter stores for `LLAMA3`: by what each frequency of 8 dimensions is divided."""
    factor, low, high, context = 8.0, 1.0, 4.0, 32
    found = []
    for i in range(4):
        wavelength = 2 * math.pi * 500.0 ** (2 * i / 8)
        smooth = min(max((context / wavelength - low) / (high - low), 0.0), 1.0)
        found.append(1 / ((1 - smooth) / factor + smooth))
    return torch.tensor(found)


CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Tensor]]] = {
    "llama": ("llama", "Llama", {}, {}, {}),
    "llama with biases, tied": (
        "llama", "Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, {}, {},
    ),
    "llama 3": ("llama", "Llama", {"rope_parameters": LLAMA3}, {"rope.freq_base": 500.0},
                {"rope_freqs.weight": divisors()}),
    "llama, linear rope": (
        "llama", "Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, {},
    ),
    "qwen2": ("qwen2", "Qwen2", {"tie_word_embeddings": True}, {}, {}),
    "qwen2, yarn": (
        "qwen2", "Qwen2", {"rope_parameters": YARN},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0, "rope.scaling.original_context_length": 32}, {},
    ),
    "qwen3": ("qwen3", "Qwen3", {"head_dim": 16}, {}, {}),
    "gemma": ("gemma", "Gemma", GEMMA, {}, {}),
    "gemma2": (
        "gemma2", "Gemma2", {**GEMMA, "sliding_window": 5, "query_pre_attn_scalar": 16, "layer_types": LOCAL},
        {"attention.sliding_window": 5, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}, {},
    ),
    "gemma3": (
        "gemma3", "Gemma3",
        {**GEMMA, "sliding_window": 5, "query_pre_attn_scalar": 16, "layer_types": LOCAL, "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}},
        {"attention.sliding_window": 5, "attention.sliding_window_pattern": 2, "rope.freq_base": 1e6,
         "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}, {},
    ),
    "phi3": ("phi3", "Phi3", {"sliding_window": 6}, {"attention.sliding_window": 6}, {}),
    "phi3, longrope": (
        "phi3", "Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32},
        {"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": math.sqrt(1 + 1 / 5)},
        {"rope_factors_short.weight": torch.tensor(LONGROPE["short_factor"]),
         "rope_factors_long.weight": torch.tensor(LONGROPE["long_factor"])},
    ),
    "gpt2": ("gpt2", "GPT2", {"n_inner": 64}, {}, {}),
    "neox": ("gptneox", "GPTNeoX", {"rotary_pct": 0.5}, {"rope.dimension_count": 4, "use_parallel_residual": True}, {}),
    "neox, one after the other": (
        "gptneox", "GPTNeoX", {"use_parallel_residual": False, "rotary_pct": 1.0}, {"use_parallel_residual": False}, {},
    ),
}  # fmt: skip


def write_case(path: Path, case: str) -> Any:
    architecture, name, config, metadata, tensors = CASES[case]
    model = tiny(name, **config)
    values = {**metadata_of(model.config, architecture), **byte_level_metadata()}
    values |= {f"{architecture}.{key}": value for key, value in metadata.items()}
    write_gguf(path, values, {**converted(model, architecture), **tensors})
    return model


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(tmp_path: Path, case: str) -> None:
    path = tmp_path / "model.gguf"
    reference = write_case(path, case)
    model = load_model(open_weights(path), torch.float32)
    ids = torch.randint(0, 320, (1, 20), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected, found = reference(ids).logits, model(ids)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * max(10.0, float(expected.abs().max())))


@pytest.mark.parametrize("case", ["llama", "gemma", "neox"])
def test_what_was_loaded_can_be_saved_as_a_directory(tmp_path: Path, case: str) -> None:
    path = tmp_path / "model.gguf"
    write_case(path, case)
    checkpoint = open_weights(path)
    model = load_model(checkpoint, torch.float32)
    (tmp_path / "saved").mkdir()
    save_model(model, tmp_path / "saved", checkpoint.values)
    again = load_model(open_weights(tmp_path / "saved"), torch.float32)
    ids = torch.arange(12)[None]
    assert torch.equal(again(ids), model(ids))


def test_the_largest_gemmas_scale_by_width(tmp_path: Path) -> None:
    values = {
        **metadata_of(tiny("Gemma3", **CASES["gemma3"][2]).config, "gemma3"),
        "gemma3.block_count": 62,
        "gemma3.attention.sliding_window": 5,
    }
    checkpoint = open_gguf(read_gguf(write_gguf(tmp_path / "x.gguf", values, llama_tensors())))
    assert {layer.attention_scale for layer in checkpoint.config.layers} == {(32 / 4) ** -0.5}
    assert [layer.window for layer in checkpoint.config.layers[:7]] == [5, 5, 5, 5, 5, None, 5]


def test_a_gguf_file_is_a_model_like_any_other(tmp_path: Path) -> None:
    loaded = load(str(write_llama(tmp_path / "model.gguf", general__sampling__temp=0.5)))
    assert loaded.eos == {0, 2} and loaded.sampling == {"temperature": 0.5} and loaded.template is not None
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("a little fox").ids) == "a little fox"
    assert next(loaded.model.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"general__architecture": "mamba"}, "architecture 'mamba' is not supported, only llama, qwen2"),
        ({"split__count": 3}, "one of 3 parts"),
        ({"llama__expert_count": 8}, "expert_count = 8 is not supported"),
        ({"llama__block_count": 2**31}, "block_count must be 1 to 4096"),
        ({"llama__attention__head_count": 0}, "numbers that no decoder can have"),
        ({"llama__attention__head_count": 3}, "3 heads cannot share 2"),
        ({"llama__attention__head_count": [4, 4]}, "must be a whole number"),
        ({"llama__attention__value_length": 4}, "value_length = 4 is not supported, only 8"),
        ({"llama__rope__scaling__type": "dynamic"}, "rope.scaling.type 'dynamic' is not supported"),
        ({"llama__feed_forward_length": 65}, "needs [32, 65]"),
        ({"llama__block_count": 2}, "tensor blk.1.attn_norm.weight is missing"),
    ],
)
def test_what_cannot_be_a_decoder_is_named(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    path = write_llama(tmp_path / "model.gguf", **changes)
    with pytest.raises(InputError) as error:
        load_model(open_weights(path), torch.float32)
    assert complaint in str(error.value) and str(error.value).startswith(str(path))


def test_a_tensor_that_nothing_needs_is_an_error(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", llama_metadata(), {**llama_tensors(), "blk.0.extra.weight": torch.ones(4)})
    with pytest.raises(InputError, match=r"blk\.0\.extra\.weight"):
        load_model(open_weights(path), torch.float32)


def test_divisors_of_frequencies_must_be_plain_numbers(tmp_path: Path) -> None:
    tensors = {**llama_tensors(), "rope_freqs.weight": torch.ones(2, 2)}
    with pytest.raises(InputError, match="not a list of F32"):
        open_weights(write_gguf(tmp_path / "x.gguf", llama_metadata(), tensors))


def test_divisors_are_read_as_such(tmp_path: Path) -> None:
    tensors = {**llama_tensors(), "rope_freqs.weight": torch.tensor([1.0, 2.0, 3.0, 4.0])}
    rope = open_weights(write_gguf(tmp_path / "x.gguf", llama_metadata(), tensors)).config.layers[0].rope
    factors = (1.0, 2.0, 3.0, 4.0)
    assert rope == Rope(dim=8, scaling="longrope", original_context=64, short_factor=factors, long_factor=factors)
