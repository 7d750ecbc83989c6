"""The architectures of GGUF files: metadata -> Config, their tensor names -> ours.

Their names are the same for all architectures. The converter has already made some things plain: matrices stand as
(out, in), Gemma's gains include their one. Two it has made harder: the rows of Llama's queries and keys stand in the
order of interleaved rotary pairs, and the rotary scaling of Llama 3 and of long contexts is a tensor of divisors.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from transformer.config import Activation, Config, Layer, Norm, Residual, Rope
from transformer.errors import InputError
from weights.families.family import Family, Tensors, interleaved, same, stacked
from weights.families.foreign import Foreign

ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")


COMMON = (
    same("token_embd", "embed"),
    same("position_embd", "position"),
    same("blk.{i}.attn_norm", "blocks.{i}.attention_norm"),
    same("blk.{i}.attn_q_norm", "blocks.{i}.attention.q_norm"),
    same("blk.{i}.attn_k_norm", "blocks.{i}.attention.k_norm"),
    same("blk.{i}.attn_v", "blocks.{i}.attention.v"),
    same("blk.{i}.attn_output", "blocks.{i}.attention.out"),
    same("blk.{i}.post_attention_norm", "blocks.{i}.attention_output"),
    same("blk.{i}.ffn_norm", "blocks.{i}.mlp_norm"),
    same("blk.{i}.ffn_down", "blocks.{i}.mlp.down"),
    same("blk.{i}.post_ffw_norm", "blocks.{i}.mlp_output"),
    same("output_norm", "final_norm"),
    same("output", "head"),
)
QUERIES_AND_KEYS = (
    same("blk.{i}.attn_q", "blocks.{i}.attention.q"),
    same("blk.{i}.attn_k", "blocks.{i}.attention.k"),
)
TURNED_QUERIES_AND_KEYS = (
    interleaved("blk.{i}.attn_q", "blocks.{i}.attention.q"),
    interleaved("blk.{i}.attn_k", "blocks.{i}.attention.k"),
)
FUSED_QKV = (stacked("blk.{i}.attn_qkv", "blocks.{i}.attention.q", "blocks.{i}.attention.k", "blocks.{i}.attention.v"),)
GATE = (same("blk.{i}.ffn_gate", "blocks.{i}.mlp.gate"),)
UP = (same("blk.{i}.ffn_up", "blocks.{i}.mlp.up"),)
FUSED_GATE_UP = (stacked("blk.{i}.ffn_up", "blocks.{i}.mlp.gate", "blocks.{i}.mlp.up"),)


def read_llama(c: Foreign) -> Config:
    return _decoder(c)


def read_qwen3(c: Foreign) -> Config:
    config = _decoder(c)
    return replace(config, qk_norm=config.norm)


def read_gemma(c: Foreign) -> Config:
    config = _decoder(c, activation="gelu_tanh")
    return replace(config, embed_scale=config.width**0.5)


def read_gemma2(c: Foreign) -> Config:
    config = read_gemma(c)
    layers = _windowed(c, config, 4096, every=2, local_rope=config.layers[0].rope)
    return replace(
        config,
        residual="sandwich",
        layers=_scaled_by_width(c, config, layers, 46),
        attention_softcap=c.number("attn_logit_softcapping", 50.0),
        logit_softcap=c.number("final_logit_softcapping", 30.0),
    )


def read_gemma3(c: Foreign) -> Config:
    config = read_gemma(c)
    local = Rope(dim=config.head_dim, theta=c.number("rope.freq_base_swa", 10_000.0))
    layers = _windowed(c, config, None, every=6, local_rope=local)
    return replace(
        config,
        residual="sandwich",
        qk_norm=config.norm,
        layers=_scaled_by_width(c, config, layers, 62),
        logit_softcap=c.number("final_logit_softcapping", 0.0) or None,
    )


def read_phi3(c: Foreign) -> Config:
    config = _decoder(c)
    window = c.integer("attention.sliding_window", 0) or None
    return replace(config, layers=tuple(replace(layer, window=window) for layer in config.layers))


def read_gpt2(c: Foreign) -> Config:
    config = _decoder(c, activation="gelu_tanh")
    layers = tuple(replace(layer, rope=None) for layer in config.layers)
    return replace(config, gated=False, position_embedding="learned", layers=layers)


def read_gptneox(c: Foreign) -> Config:
    residual: Residual = "parallel" if c.flag("use_parallel_residual", True) else "pre"
    return replace(_decoder(c, activation="gelu"), gated=False, residual=residual)


def _decoder(c: Foreign, activation: Activation = "silu") -> Config:
    """What all architectures share. What the metadata leave open, the tensors that are there tell."""
    c.refuse("expert_count", unless=0)
    tensors = c.table("tensors")
    heads, width = c.integer("attention.head_count"), c.integer("embedding_length")
    head_dim = c.integer("attention.key_length", width // heads)
    c.refuse("attention.value_length", unless=head_dim)
    layer = Layer(
        mlp_width=c.integer("feed_forward_length"),
        attention_scale=c.number("attention.scale", 0.0) or head_dim**-0.5,
        rope=_rope(c, head_dim),
    )
    return Config(
        vocab_size=tensors.list("token_embd.weight")[0],
        context=c.integer("context_length"),
        width=width,
        heads=heads,
        kv_heads=c.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        layers=(layer,) * c.layers("block_count"),
        norm=_norm(c),
        activation=activation,
        qkv_bias=tensors.has("blk.0.attn_q.bias") or tensors.has("blk.0.attn_qkv.bias"),
        out_bias=tensors.has("blk.0.attn_output.bias"),
        mlp_bias=tensors.has("blk.0.ffn_down.bias"),
        head_bias=tensors.has("output.bias"),
        tied=not tensors.has("output.weight"),
    )


def _norm(c: Foreign) -> Norm:
    if c.has("attention.layer_norm_epsilon"):
        return Norm(kind="layer", eps=c.number("attention.layer_norm_epsilon"), bias=True)
    return Norm(eps=c.number("attention.layer_norm_rms_epsilon"))


def _rope(c: Foreign, head_dim: int) -> Rope:
    dim, theta = c.integer("rope.dimension_count", head_dim), c.number("rope.freq_base", 10_000.0)
    plain = Rope(dim=dim, theta=theta)
    context = c.integer("context_length")
    original = c.integer("rope.scaling.original_context_length", context)
    magnitude = c.number("rope.scaling.attn_factor", 1.0)
    if c.has("rope_freqs.weight"):
        divisors = c.numbers("rope_freqs.weight")
        return replace(
            plain, scaling="longrope", original_context=original, short_factor=divisors, long_factor=divisors
        )
    if c.has("rope_factors_short.weight"):
        return replace(
            plain,
            scaling="longrope",
            original_context=original,
            attention_factor=magnitude,
            short_factor=c.numbers("rope_factors_short.weight"),
            long_factor=c.numbers("rope_factors_long.weight"),
        )
    factor = c.number("rope.scaling.factor", c.number("rope.scale_linear", 1.0)) or 1.0
    kind = c.text("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn"):
        raise InputError(f"{c.source}: rope.scaling.type {kind!r:.40} is not supported, only none, linear, yarn")
    if kind == "none" or factor == 1.0:
        return plain
    if kind == "linear":
        return replace(plain, scaling="linear", factor=factor)
    return replace(
        plain,
        scaling="yarn",
        factor=factor,
        original_context=original,
        attention_factor=magnitude * (0.1 * math.log(max(factor, 1.0)) + 1.0),
        beta_fast=c.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=c.number("rope.scaling.yarn_beta_slow", 1.0),
    )


def _windowed(c: Foreign, config: Config, window: int | None, every: int, local_rope: Rope | None) -> tuple[Layer, ...]:
    """Local layers, and a global one at the end of each `every`."""
    window = c.integer("attention.sliding_window", window)
    pattern: Any = c.values.get("attention.sliding_window_pattern")
    if not isinstance(pattern, list):
        every = c.integer("attention.sliding_window_pattern", every)
        pattern = [every == 0 or i % every < every - 1 for i in range(len(config.layers))]
    if not window:
        return config.layers
    local = [replace(layer, window=window, rope=local_rope) for layer in config.layers]
    if len(pattern) != len(config.layers):
        raise InputError(f"{c.source}: a window pattern of {len(pattern)} for {len(config.layers)} layers")
    return tuple(local[i] if is_local else config.layers[i] for i, is_local in enumerate(pattern))


def _scaled_by_width(c: Foreign, config: Config, layers: tuple[Layer, ...], largest: int) -> tuple[Layer, ...]:
    """Gemma's largest, told by its number of layers, divides scores by the root of width / heads; no key says so."""
    if len(layers) != largest or c.has("attention.scale"):
        return layers
    scale = (config.width / config.heads) ** -0.5
    return tuple(replace(layer, attention_scale=scale) for layer in layers)


def _family(name: str, read: Any, *tensors: tuple[Tensors, ...]) -> Family:
    rules = COMMON + tuple(rule for some in tensors for rule in some)
    ignored = tuple(factor.replace(".", r"\.") for factor in ROPE_FACTORS)
    return Family(name, name, read, rules, prefix="", ignored=ignored, headless=("output.",))


ARCHITECTURES: dict[str, Family] = {
    family.model_type: family
    for family in (
        _family("llama", read_llama, TURNED_QUERIES_AND_KEYS, GATE, UP),
        _family("qwen2", read_llama, QUERIES_AND_KEYS, GATE, UP),
        _family("qwen3", read_qwen3, QUERIES_AND_KEYS, GATE, UP),
        _family("gemma", read_gemma, QUERIES_AND_KEYS, GATE, UP),
        _family("gemma2", read_gemma2, QUERIES_AND_KEYS, GATE, UP),
        _family("gemma3", read_gemma3, QUERIES_AND_KEYS, GATE, UP),
        _family("phi3", read_phi3, FUSED_QKV, FUSED_GATE_UP),
        _family("gpt2", read_gpt2, FUSED_QKV, UP),
        _family("gptneox", read_gptneox, FUSED_QKV, UP),
    )
}
