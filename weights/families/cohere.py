"""cohere: one LayerNorm for attention and MLP side by side; rotary pairs stand interleaved in the file."""

from __future__ import annotations

from dataclasses import replace

from transformer.config import Config, Norm
from weights.families import llama
from weights.families.family import Family, interleaved, same
from weights.families.foreign import Foreign

TENSORS = (
    *llama.ENDS,
    *llama.ATTENTION[2:],
    *llama.MLP,
    same("layers.{i}.input_layernorm", "blocks.{i}.attention_norm"),
    interleaved("layers.{i}.self_attn.q_proj", "blocks.{i}.attention.q"),
    interleaved("layers.{i}.self_attn.k_proj", "blocks.{i}.attention.k"),
    interleaved("layers.{i}.self_attn.q_norm", "blocks.{i}.attention.q_norm"),
    interleaved("layers.{i}.self_attn.k_norm", "blocks.{i}.attention.k_norm"),
)


def read(c: Foreign) -> Config:
    c = c.defaulting(max_position_embeddings=8192, rope_theta=500_000.0, tie_word_embeddings=True)
    norm = Norm(kind="layer", eps=c.number("layer_norm_eps", 1e-5))
    return replace(
        llama.read(c),
        residual="parallel_shared",
        norm=norm,
        qk_norm=norm if c.flag("use_qk_norm", False) else None,
        qk_norm_over="each_head" if c.flag("use_qk_norm", False) else "head",
        logit_scale=c.number("logit_scale", 0.0625),
    )


FAMILY = Family("cohere", "CohereForCausalLM", read, TENSORS, ignored=llama.IGNORED)
