"""Published models: from the shape that their config.json tells, as many parameters as they are known to have."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transformer.model import Transformer
from weights.families.registry import read_config

UNUSED_POSITIONS = 2  # rows that OPT stores and nothing reads
PUBLISHED: dict[str, tuple[int, dict[str, Any]]] = {
    "gpt2": (124_439_808, {
        "model_type": "gpt2", "vocab_size": 50_257, "n_ctx": 1024, "n_positions": 1024, "n_embd": 768,
        "n_layer": 12, "n_head": 12, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
    }),
    "pythia-160m": (162_322_944, {
        "model_type": "gpt_neox", "vocab_size": 50_304, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu", "rotary_pct": 0.25,
        "rotary_emb_base": 10_000, "use_parallel_residual": True, "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }),
    "opt-125m": (125_239_296 - UNUSED_POSITIONS * 768, {
        "model_type": "opt", "vocab_size": 50_272, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "ffn_dim": 3072, "word_embed_proj_dim": 768, "do_layer_norm_before": True,
        "max_position_embeddings": 2048, "activation_function": "relu",
    }),
    "opt-350m": (331_196_416 - UNUSED_POSITIONS * 1024, {
        "model_type": "opt", "vocab_size": 50_272, "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "ffn_dim": 4096, "word_embed_proj_dim": 512, "do_layer_norm_before": False,
        "max_position_embeddings": 2048,
    }),
    "bloom-560m": (559_214_592, {
        "model_type": "bloom", "vocab_size": 250_880, "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16,
        "n_inner": None, "seq_length": 2048,
    }),
    "falcon-7b": (6_921_720_704, {
        "model_type": "falcon", "vocab_size": 65_024, "hidden_size": 4544, "num_hidden_layers": 32,
        "num_attention_heads": 71, "multi_query": True, "new_decoder_architecture": False,
        "parallel_attn": True, "bias": False, "alibi": False,
    }),
    "falcon-40b": (41_303_293_952, {
        "model_type": "falcon", "vocab_size": 65_024, "hidden_size": 8192, "num_hidden_layers": 60,
        "num_attention_heads": 128, "num_kv_heads": 8, "new_decoder_architecture": True, "parallel_attn": True,
        "bias": False, "alibi": False,
    }),
    "Llama-3.2-1B": (1_235_814_400, {
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "tie_word_embeddings": True, "max_position_embeddings": 131_072, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    }),
    "Llama-2-7b": (6_738_415_616, {
        "model_type": "llama", "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "tie_word_embeddings": False,
    }),
    "SmolLM2-135M": (134_515_008, {
        "model_type": "llama", "vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    }),
    "Mistral-7B-v0.1": (7_241_732_096, {
        "model_type": "mistral", "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096,
    }),
    "Mixtral-8x7B": (46_702_792_704, {
        "model_type": "mixtral", "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": None,
        "num_local_experts": 8,
    }),
    "Qwen2.5-0.5B": (494_032_768, {
        "model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": 32_768,
        "max_window_layers": 24, "use_mrope": False,
    }),
    "Qwen3-0.6B": (596_049_920, {
        "model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "tie_word_embeddings": True, "sliding_window": None, "use_sliding_window": False,
    }),
    "Qwen3-30B-A3B": (30_532_122_624, {
        "model_type": "qwen3_moe", "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144,
        "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "norm_topk_prob": True, "mlp_only_layers": [], "decoder_sparse_step": 1, "sliding_window": None,
    }),
    "gemma-2b": (2_506_172_416, {
        "model_type": "gemma", "vocab_size": 256_000, "hidden_size": 2048, "intermediate_size": 16_384,
        "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
        "hidden_act": "gelu",
    }),
    "gemma-2-2b": (2_614_341_888, {
        "model_type": "gemma2", "vocab_size": 256_000, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "query_pre_attn_scalar": 256, "sliding_window": 4096,
    }),
    "gemma-3-1b": (999_885_952, {
        "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "sliding_window": 512, "sliding_window_pattern": 6, "rope_local_base_freq": 10_000,
        "rope_theta": 1_000_000,
    }),
    "phi-2": (2_779_683_840, {
        "model_type": "phi", "vocab_size": 51_200, "hidden_size": 2560, "intermediate_size": 10_240,
        "num_hidden_layers": 32, "num_attention_heads": 32, "partial_rotary_factor": 0.4, "qk_layernorm": False,
    }),
    "Phi-3-mini-4k": (3_821_079_552, {
        "model_type": "phi3", "vocab_size": 32_064, "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "sliding_window": 2047,
        "rope_scaling": None, "original_max_position_embeddings": 4096,
    }),
    "Phi-4-mini": (3_836_021_760, {
        "model_type": "phi3", "vocab_size": 200_064, "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8,
        "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
    }),
    "stablelm-2-1_6b": (1_644_515_328, {
        "model_type": "stablelm", "vocab_size": 100_352, "hidden_size": 2048, "intermediate_size": 5632,
        "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 32, "use_qkv_bias": True,
        "partial_rotary_factor": 0.25, "layer_norm_eps": 1e-05, "tie_word_embeddings": False,
    }),
    "OLMo-1B-hf": (1_176_764_416, {
        "model_type": "olmo", "vocab_size": 50_304, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 16, "tie_word_embeddings": True,
    }),
    "OLMo-2-7B": (7_298_617_344, {
        "model_type": "olmo2", "vocab_size": 100_352, "hidden_size": 4096, "intermediate_size": 11_008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "rope_theta": 500_000,
    }),
    "SmolLM3-3B": (3_075_098_624, {
        "model_type": "smollm3", "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 11_008,
        "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
    }),
    "granite-3.0-2b": (2_533_531_648, {
        "model_type": "granite", "vocab_size": 49_155, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
        "tie_word_embeddings": True, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22, "logits_scaling": 8.0,
    }),
    "c4ai-command-r-v01": (34_980_831_232, {
        "model_type": "cohere", "vocab_size": 256_000, "hidden_size": 8192, "intermediate_size": 22_528,
        "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": 64, "logit_scale": 0.0625,
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_number_of_parameters(name: str) -> None:
    count, values = PUBLISHED[name]
    _, config = read_config(values, name)
    with torch.device("meta"):
        model = Transformer(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
