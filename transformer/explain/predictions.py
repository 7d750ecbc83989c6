"""What the model expected: surprisal of each token and the likeliest alternatives, logits taken in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.model import Transformer
from transformer.norm import at_least_float32

BLOCK = 1 << 21  # logits held at once


class Predictions(NamedTuple):
    """What stands at row i is said behind token i, of the token that comes next."""

    surprisal: list[float]  # bits of token i + 1; one fewer than tokens
    ids: Tensor  # (n, top)
    p: Tensor  # (n, top)


def log_probabilities(model: Transformer, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The stream (n, C) -> log p (rows, V), some rows at a time."""
    step = max(1, BLOCK // model.config.vocab_size)
    for start in range(0, len(x), step):
        logits = model.logits(x[None, start : start + step])[0]
        yield slice(start, start + len(logits)), at_least_float32(logits).log_softmax(-1)


def predictions(model: Transformer, x: Tensor, ids: Sequence[int], top: int) -> Predictions:
    """x (n, C) is the stream behind the last block."""
    actual = torch.tensor([*ids[1:], 0], device=x.device)
    top = min(top, model.config.vocab_size)
    bits, likeliest = torch.empty(len(ids)), torch.empty(len(ids), top, dtype=torch.int64)
    p = torch.empty(len(ids), top)
    for rows, logp in log_probabilities(model, x):
        bits[rows] = logp.gather(1, actual[rows, None])[:, 0].cpu().float() / -math.log(2)
        values, places = logp.topk(top)
        likeliest[rows], p[rows] = places.cpu(), values.exp().cpu().float()
    return Predictions(bits[:-1].tolist(), likeliest, p)
