"""The decoder: ids -> logits, nothing else.

Shapes in one letter code: B batch, T new positions, S cached positions, H query heads, K key/value heads,
D head width, C model width, V vocabulary.
"""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn

from transformer.attention import Attention, Shared
from transformer.cache import KVCache, Step
from transformer.config import Config
from transformer.linear import Linear
from transformer.mask import Mask, causal
from transformer.mlp import build_mlp
from transformer.native import NativeBlocks
from transformer.norm import build_norm
from transformer.position import Rotation, alibi_bias, rotation, sinusoids
from transformer.tap import FUSED, Tap


class Block(nn.Module):
    """x + f(norm(x)); what leaves f may be normalised or scaled as well."""

    def __init__(self, config: Config, index: int):
        super().__init__()
        self.layer = index
        before, after = config.residual != "output", config.residual in ("output", "sandwich")
        self.attention_norm = _norm_if(before, config)
        self.attention = Attention(config, index)
        self.attention_output = _norm_if(after, config) if after else _scale(config.residual_scale)
        self.mlp_norm = _norm_if(before, config)
        self.mlp = build_mlp(config, index)
        self.mlp_output = _norm_if(after, config) if after else _scale(config.residual_scale)

    def forward(self, x: Tensor, shared: Shared) -> Tensor:
        write = shared.tap.write
        h = self.attention(self.attention_norm(x), shared)
        x = x + write(self.layer, "attention", self.attention_output(h))
        x = x + write(self.layer, "mlp", self.mlp_output(self.mlp(self.mlp_norm(x))))
        return x


class PostNormBlock(nn.Module):
    """norm(x + f(x)), as in 2017."""

    def __init__(self, config: Config, index: int):
        super().__init__()
        self.layer = index
        self.attention = Attention(config, index)
        self.attention_norm = _norm_if(True, config)
        self.mlp = build_mlp(config, index)
        self.mlp_norm = _norm_if(True, config)

    def forward(self, x: Tensor, shared: Shared) -> Tensor:
        write = shared.tap.write
        x = self.attention_norm(x + write(self.layer, "attention", self.attention(x, shared)))
        x = self.mlp_norm(x + write(self.layer, "mlp", self.mlp(x)))
        return x


class ParallelBlock(nn.Module):
    """x + attention(norm(x)) + mlp(norm(x)), with one norm or two."""

    def __init__(self, config: Config, index: int):
        super().__init__()
        self.layer = index
        self.attention_norm = _norm_if(True, config)
        self.attention = Attention(config, index)
        self.mlp_norm = None if config.residual == "parallel_shared" else _norm_if(True, config)
        self.mlp = build_mlp(config, index)

    def forward(self, x: Tensor, shared: Shared) -> Tensor:
        write = shared.tap.write
        h = self.attention_norm(x)
        m = h if self.mlp_norm is None else self.mlp_norm(x)
        x = x + write(self.layer, "attention", self.attention(h, shared)) + write(self.layer, "mlp", self.mlp(m))
        return x


class Transformer(nn.Module):
    native: NativeBlocks | None = None  # the blocks, compiled, for sequences with a cache

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        V, C, E = config.vocab_size, config.width, config.embed_width or config.width
        self.embed = _embedding(V, E)
        self.embed_scale = _scale(config.embed_scale)
        self.embed_in = nn.Identity() if E == C else Linear(E, C, bias=False)
        self.position = _embedding(config.context, C) if config.position_embedding == "learned" else None
        self.embed_norm = _norm_if(config.embed_norm, config)
        block = {"post": PostNormBlock, "parallel": ParallelBlock, "parallel_shared": ParallelBlock}
        build = block.get(config.residual, Block)
        self.blocks = nn.ModuleList(build(config, i) for i in range(len(config.layers)))
        self.ropes = list(dict.fromkeys(layer.rope for layer in config.layers))
        self.rope_of_layer = [self.ropes.index(layer.rope) for layer in config.layers]
        self.final_norm = _norm_if(config.final_norm, config)
        self.head_in = nn.Identity() if E == C else Linear(C, E, bias=False)
        self.head = Linear(E, V, config.head_bias)
        self.head_output = nn.Sequential(_scale(config.logit_scale), _softcap(config.logit_softcap))
        self.tie()

    def tie(self) -> None:
        """One matrix reads tokens and writes them, where the config says so."""
        if self.config.tied:
            self.head.weight = self.embed.weight

    @property
    def device(self) -> torch.device:
        return next(chain(self.embed.parameters(), self.embed.buffers())).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the residual stream."""
        return next(chain(self.embed.parameters(), self.embed.buffers())).dtype

    def forward(self, ids: Tensor, cache: KVCache | None = None, tap: Tap = FUSED) -> Tensor:
        """ids (B, T) -> logits (B, T, V)"""
        return self.logits(self.hidden(ids, cache, tap))

    def hidden(self, ids: Tensor, cache: KVCache | None = None, tap: Tap = FUSED) -> Tensor:
        """ids (B, T) -> the residual stream after the last block (B, T, C)"""
        T = ids.shape[1]
        step = None if cache is None else cache.begin(T)
        positions = torch.arange(T, device=ids.device)[None] if step is None else step.positions
        x = self.embed_norm(self.place(self.embed_in(self.embed_scale(self.embed(ids))), positions))
        x = tap.write(-1, "embedding", x)
        rotations = self._rotations(positions, x, step)
        if self.native is not None and step is not None and self.native.takes(x, step, tap):
            x = self.native(x, step, next(filter(None, rotations), None))
        else:
            shared = self._share(positions, x, step, rotations, tap)
            for block in self.blocks:
                x = block(x, shared)
        if cache is not None:
            cache.advance(T)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """The stream (B, T, C) -> logits (B, T, V)"""
        return self.head_output(self.head(self.head_in(self.final_norm(x))))

    def place(self, x: Tensor, positions: Tensor) -> Tensor:
        """Adds what tells a position, where an embedding does: x (B, T, C), positions (B or 1, T)"""
        if self.position is not None:
            return x + self.position(positions)
        if self.config.position_embedding == "sinusoidal":
            return x + sinusoids(positions, self.config.width, x.dtype)
        return x

    def _rotations(self, positions: Tensor, x: Tensor, step: Step | None) -> list[Rotation | None]:
        """One for each of the ropes that layers use."""
        horizons = [x.shape[1]] if step is None else step.horizons
        return [rotation(rope, positions, horizons, x.dtype) if rope else None for rope in self.ropes]

    def _share(
        self, positions: Tensor, x: Tensor, step: Step | None, rotations: list[Rotation | None], tap: Tap
    ) -> Shared:
        """Masks, rotations and biases, made once for all layers that use the same."""
        masks: dict[int | None, Mask | None] = {}
        biases: dict[int | None, Tensor | None] = {}
        for layer in self.config.layers:
            if layer.window not in masks:
                w = layer.window
                masks[w] = step.mask(w) if step is not None else causal(x.shape[1], w, x.device)
                biases[w] = self._bias(masks[w], positions, x)
        return Shared(
            tap=tap,
            step=step,
            masks=[masks[layer.window] for layer in self.config.layers],
            rotations=[rotations[i] for i in self.rope_of_layer],
            biases=[biases[layer.window] for layer in self.config.layers],
        )

    def _bias(self, mask: Mask | None, positions: Tensor, x: Tensor) -> Tensor | None:
        if self.config.alibi is None:
            return None
        keys = torch.arange(int(positions.max()) + 1, device=x.device)[None] if mask is None else mask.keys
        return alibi_bias(self.config.alibi, self.config.heads, keys, x.dtype)


class Scale(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor(self.factor, dtype=x.dtype)  # rounded to the stream's own precision


class SoftCap(nn.Module):
    def __init__(self, cap: float):
        super().__init__()
        self.cap = cap

    def forward(self, x: Tensor) -> Tensor:
        return self.cap * torch.tanh(x / self.cap)


def _embedding(rows: int, width: int) -> nn.Embedding:
    # Not nn.Embedding(rows, width): drawing its numbers on the meta device makes torch import its compiler.
    return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)


def _norm_if(wanted: bool, config: Config) -> nn.Module:
    return build_norm((config.width,), config.norm) if wanted else nn.Identity()


def _scale(factor: float) -> nn.Module:
    return nn.Identity() if factor == 1.0 else Scale(factor)


def _softcap(cap: float | None) -> nn.Module:
    return nn.Identity() if cap is None else SoftCap(cap)
