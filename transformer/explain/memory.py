"""What a question will cost, before it is asked."""

from __future__ import annotations

from collections.abc import Iterable

from transformer.config import Config
from transformer.recording import BLOCK, Observer


def estimate(config: Config, length: int, observers: Iterable[Observer], item: int = 4) -> int:
    """Bytes above the loaded model that one recorded pass over `length` tokens needs at its peak; numbers of the
    stream take `item` bytes each."""
    observers = list(observers)
    widest = max(layer.mlp_width for layer in config.layers) * (3 if config.gated else 2)
    heads = 3 * (config.heads + 2 * config.kv_heads) * config.head_dim
    activations = length * (4 * config.width + max(widest, heads)) * item
    # Scores, the masked and the normalised ones, and what an observer makes of them; then logits, likewise.
    blocks = (
        4 * 4 * min(BLOCK, config.heads * length**2) if any(o.rows is None or len(o.rows) for o in observers) else 0
    )
    blocks = max(blocks, 4 * 4 * max(BLOCK, config.vocab_size))
    masks = length**2 * (4 if config.alibi else 1) if config.alibi or any(x.window for x in config.layers) else 0
    return activations + blocks + masks + sum(observer.memory() for observer in observers)
