"""Bits per byte: how well a decoder predicts text it has not seen, whatever its tokenizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from transformer.data import IGNORED, Span, Tokens
from transformer.parallel import World

ROWS = 16  # sequences at once


def windows(documents: Sequence[Span], context: int) -> list[Span]:
    """Documents, the long ones in pieces that overlap in one token: all but the first token of each are targets."""
    return [
        Span(start, min(start + context + 1, document.stop))
        for document in documents
        for start in range(document.start, document.stop - 1, context)
    ]


@torch.no_grad()
def bits_per_byte(
    module: nn.Module,
    tokens: Tokens,
    spans: Sequence[Span],
    token_bytes: Tensor,
    stop: Callable[[], bool],
    world: World,
    rows: int = ROWS,
) -> float | None:
    """Over the spans, each seen alone. None if there is no text in them, or if `stop` came true meanwhile."""
    nats, size = 0.0, 0
    device = next(module.parameters()).device
    module.eval()
    spans = sorted(spans, key=lambda span: span.stop - span.start)  # equal lengths together: little padding
    for start in range(0, len(spans), rows * world.size):
        if world.any(stop()):
            return None
        mine = spans[start : start + rows * world.size][world.rank :: world.size]
        # A process for which no span is left goes through the motions: a sharded model is called by all or none.
        ids, targets = _padded(tokens, mine or spans[:1], token_bytes)
        logits = module(ids.to(device)).flatten(0, 1).float().cpu()
        if mine:
            nats += F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="sum").item()
            size += int(token_bytes[targets[targets != IGNORED]].sum())
    nats, size_of_all = world.total(nats, size)
    return nats / math.log(2) / size_of_all if size_of_all else None


def _padded(tokens: Tokens, spans: Sequence[Span], token_bytes: Tensor) -> tuple[Tensor, Tensor]:
    """Ids (B, T) and targets (B, T) of spans of different lengths. Special tokens are no text, hence no targets."""
    rows = [tokens.read(span) for span in spans]
    ids = pad_sequence([row for row, _ in rows], batch_first=True)  # (B, T + 1)
    learnt = pad_sequence([row for _, row in rows], batch_first=True)[:, 1:]
    targets = ids[:, 1:]
    return ids[:, :-1], targets.masked_fill(~learnt | (token_bytes[targets] == 0), IGNORED)
