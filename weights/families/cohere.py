"""cohere: one LayerNorm for attention and MLP side by side; rotary pairs stand interleaved in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transformer.config import Config, Norm
from weights.families import llama
from weights.families.family import Family, Tensors, same
from weights.families.foreign import Foreign

if TYPE_CHECKING:
    from torch import Tensor


def interleaved(theirs: str, ours: str) -> Tensors:
    """Pair i of a head stands in rows 2i and 2i + 1; with us in rows i and i + D/2."""

    def turned(config: Config, rows: Tensor, *pairs: int) -> Tensor:
        heads = config.heads if ours.endswith(("q", "q_norm")) else config.kv_heads
        return rows.reshape(heads, *pairs, -1).transpose(1, 2).reshape(rows.shape)

    def load(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [turned(config, rows, config.head_dim // 2, 2) for rows in tensors]

    def save(config: Config, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [turned(config, rows, 2, config.head_dim // 2) for rows in tensors]

    return Tensors((theirs,), (ours,), load, save)


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
