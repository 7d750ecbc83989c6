"""Every family in several configurations, as transformers would make them: tiny, with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

VOCABULARY, CONTEXT = 97, 64
TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
COMMON = {
    **TOKENS,
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
}
GATED = {**COMMON, "intermediate_size": 96}
GROUPED = {**GATED, "num_key_value_heads": 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + i / 16 for i in range(8)],
    "long_factor": [2.0 + i for i in range(8)],
}


# Random weights easily make a decoder that repeats one token, which would show nothing. Tied embeddings that outweigh
# what the blocks write do so; these families scale theirs up. Some seeds do; these do not.
SMALL_EMBEDDINGS = ("gemma2", "gemma3_text", "gemma3")
SEEDS = {
    "opt/post_norm_narrow": 8,
    "bloom/plain": 10,
    "bloom/six_heads": 3,
    "falcon/one_norm": 1,
    "gemma3/text_part": 1,
}
LARGE_WEIGHTS = ("opt/post_norm_narrow", "bloom/plain")


@dataclass(frozen=True)
class Case:
    family: str  # as model_type
    name: str
    settings: dict[str, Any]  # for the config class of that family
    beyond: bool = False  # frequencies follow the length at every step there, once a sequence here

    def __str__(self) -> str:
        return f"{self.family}/{self.name}"

    @property
    def seed(self) -> int:
        return SEEDS.get(str(self), 0)

    @property
    def embedding_spread(self) -> float:
        return 0.03 if self.family in SMALL_EMBEDDINGS else 0.1

    @property
    def spread(self) -> float:
        return 0.35 if str(self) in LARGE_WEIGHTS else 0.25


def rope(**parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10_000.0, **parameters}}


def cases() -> Iterator[Case]:
    """The first of each family is the one for a quick look."""

    def of(family: str, base: dict[str, Any], **configurations: dict[str, Any]) -> Iterator[Case]:
        for name, settings in configurations.items():
            yield Case(family, name, {**base, **settings})

    yield from of(
        "gpt2",
        {**TOKENS, "vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT},
        plain={},
        untied_scaled_by_depth={"tie_word_embeddings": False, "scale_attn_by_inverse_layer_idx": True},
        narrow_relu={"n_inner": 40, "activation_function": "relu", "scale_attn_weights": False},
    )
    yield from of(
        "gpt_neox",
        GATED,
        parallel={},
        sequential=rope(partial_rotary_factor=1.0) | {"use_parallel_residual": False, "attention_bias": False},
        tied_linear=rope(rope_type="linear", factor=2.0, partial_rotary_factor=0.5) | {"tie_word_embeddings": True},
    )
    yield from of(
        "opt",
        {**COMMON, "ffn_dim": 96},
        plain={},
        post_norm_narrow={"do_layer_norm_before": False, "word_embed_proj_dim": 40},
        bare={"enable_bias": False, "layer_norm_elementwise_affine": False, "_remove_final_layer_norm": True},
    )
    yield from of(
        "bloom",
        {**TOKENS, "vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 3, "n_head": 4},
        plain={},
        six_heads={"hidden_size": 60, "n_head": 6},
        untied={"tie_word_embeddings": False},
    )
    yield from of(
        "falcon",
        COMMON,
        multi_query={},
        two_norms={"new_decoder_architecture": True, "num_kv_heads": 2},
        one_norm={"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
        multi_head={"multi_query": False, "ffn_hidden_size": 96},
        sequential={"parallel_attn": False, "bias": True},
        alibi={"alibi": True},
        alibi_six_heads={
            "alibi": True, "hidden_size": 60, "num_attention_heads": 6, "multi_query": False, "parallel_attn": False,
            "bias": True,
        },
    )  # fmt: skip
    yield from of(
        "llama",
        GROUPED,
        grouped={},
        multi_head_tied={"num_key_value_heads": 4, "tie_word_embeddings": True},
        multi_query_biased={"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
        wide_heads={"head_dim": 24, "hidden_act": "gelu"},
        linear=rope(rope_type="linear", factor=4.0),
        dynamic=rope(rope_type="dynamic", factor=2.0),
        yarn=rope(**YARN),
        yarn_all_settings=rope(
            **YARN, mscale=0.8, mscale_all_dim=0.5, beta_fast=16.0, beta_slow=2.0, truncate=False
        ),
        yarn_attention_factor=rope(**YARN, attention_factor=0.9),
        llama3=rope(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
        longrope_short=rope(**LONGROPE, factor=4.0, original_max_position_embeddings=64),
        longrope_long=rope(**LONGROPE, factor=4.0, original_max_position_embeddings=8),
    )  # fmt: skip
    yield Case(
        "llama",
        "dynamic_beyond",
        {**GROUPED, **rope(rope_type="dynamic", factor=2.0), "max_position_embeddings": 8},
        beyond=True,
    )
    yield from of(
        "mistral",
        GROUPED,
        window={"sliding_window": 8},
        no_window={"sliding_window": None, "head_dim": 24},
    )
    yield from of(
        "mixtral",
        {**GROUPED, "num_local_experts": 4, "sliding_window": None},
        plain={},
        window={"sliding_window": 8, "num_local_experts": 3, "num_experts_per_tok": 1},
    )
    yield from of(
        "qwen2",
        GROUPED,
        plain={},
        tied_yarn=rope(**YARN) | {"tie_word_embeddings": True},
        window_above={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
        layer_types={
            "use_sliding_window": True, "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    )  # fmt: skip
    yield from of(
        "qwen3",
        {**GROUPED, "head_dim": 24},
        plain={},
        tied_biased={"tie_word_embeddings": True, "attention_bias": True},
        window_above={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    )
    yield from of(
        "qwen3_moe",
        {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "head_dim": 24},
        renormalised={"norm_topk_prob": True},
        dense_layer={"mlp_only_layers": [0]},
        every_other_window={"decoder_sparse_step": 2, "use_sliding_window": True, "sliding_window": 8},
    )
    yield from of(
        "gemma",
        {**GATED, "head_dim": 24},
        multi_query={"num_key_value_heads": 1},
        multi_head={"num_key_value_heads": 4, "hidden_act": "gelu"},
    )
    yield from of(
        "gemma2",
        {**GROUPED, "head_dim": 24, "sliding_window": 8, "query_pre_attn_scalar": 20},
        plain={},
        tight_caps={"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "num_hidden_layers": 4},
        no_caps={"attn_logit_softcapping": None, "final_logit_softcapping": None},
    )
    local = {"rope_type": "default", "rope_theta": 100.0}
    gemma3 = {
        **GROUPED, "num_hidden_layers": 4, "head_dim": 24, "query_pre_attn_scalar": 24, "sliding_window": 8,
        "sliding_window_pattern": 3,
    }  # fmt: skip
    stretched = {"rope_type": "linear", "factor": 8.0, "rope_theta": 10_000.0}
    yield from of(
        "gemma3_text",
        gemma3,
        plain={},
        stretched_and_capped={
            "rope_parameters": {"full_attention": stretched, "sliding_attention": local},
            "final_logit_softcapping": 5.0,
        },
    )
    yield Case(
        "gemma3",
        "text_part",
        {
            "text_config": {**gemma3, "model_type": "gemma3_text"},
            "vision_config": {
                "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                "image_size": 8, "patch_size": 4,
            },
            "mm_tokens_per_image": 4, "boi_token_index": 1, "eoi_token_index": 2, "image_token_index": 3,
        },
    )  # fmt: skip
    yield from of(
        "phi",
        GATED,
        plain={},
        head_norms_grouped=rope(partial_rotary_factor=0.4) | {"qk_layernorm": True, "num_key_value_heads": 2},
    )
    yield from of(
        "phi3",
        {**GROUPED, "original_max_position_embeddings": CONTEXT},
        plain={},
        longrope_short=rope(**LONGROPE),
        longrope_long=rope(**LONGROPE) | {"original_max_position_embeddings": 8},
        partial_tied_window=rope(partial_rotary_factor=0.75) | {"tie_word_embeddings": True, "sliding_window": 8},
    )
    yield from of(
        "stablelm",
        GROUPED,
        plain={},
        parallel_biased={"use_parallel_residual": True, "use_qkv_bias": True},
        head_norms={"qk_layernorm": True},
    )
    yield from of("olmo", GROUPED, plain={}, clipped={"clip_qkv": 1.0, "tie_word_embeddings": True})
    yield from of("olmo2", GATED, multi_head={"num_key_value_heads": 4}, grouped={"num_key_value_heads": 2})
    yield from of(
        "smollm3",
        {**GROUPED, "num_hidden_layers": 4},
        plain={},
        own_choice_window={"no_rope_layers": [0, 1, 0, 1], "use_sliding_window": True, "sliding_window": 8},
    )
    yield from of(
        "granite",
        GROUPED,
        multipliers={
            "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6,
            "logits_scaling": 1.7,
        },
        biased={"attention_bias": True, "mlp_bias": True, "attention_multiplier": 0.25, "tie_word_embeddings": True},
    )  # fmt: skip
    yield from of(
        "cohere",
        {**GROUPED, "logit_scale": 0.5},
        plain={},
        head_norms={"use_qk_norm": True},
        biased_untied={"attention_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 4},
    )


CASES = list(cases())
QUICK = list({case.family: case for case in reversed(CASES)}.values())[::-1]
