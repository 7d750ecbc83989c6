"""What a question will cost, before it is asked."""

from __future__ import annotations

from collections.abc import Iterable

from transformer.config import Config
from transformer.explain.predictions import BLOCK as LOGITS
from transformer.recording import BLOCK, ROWS, Observer

REST = 16 << 20  # imports, labels, tables


def estimate(config: Config, length: int, observers: Iterable[Observer], item: int = 4) -> int:
    """Bytes above the loaded model that one recorded pass over `length` tokens needs at its peak; numbers of the
    stream take `item` bytes each."""
    observers = list(observers)
    heads = (4 * config.heads + 3 * config.kv_heads) * config.head_dim  # q, k, v; q, k turned; what is read, twice
    widest = max(layer.mlp_width for layer in config.layers) * (4 if config.gated else 2)
    # Added up, though they do not live at once: what attention gives back, the allocator seldom finds a use for.
    whole = length * (4 * config.width + heads + widest) * item
    if any(o.rows is None or len(o.rows) for o in observers):
        whole += 5 * 4 * max(BLOCK, ROWS * config.heads * length)  # scores, weights, and what is made of them
        whole += 2 * length * config.heads * config.head_dim * item  # keys and values of every query head
    if config.alibi or any(layer.window for layer in config.layers):
        whole += length**2 * (4 if config.alibi else 1)  # the fused kernel wants such masks whole
    logits = 4 * 4 * max(LOGITS, config.vocab_size)  # after the pass: they, their logarithms, and what is made of them
    return max(whole, logits) + sum(observer.memory() for observer in observers) + REST
