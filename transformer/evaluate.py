"""Bits per byte: how well a decoder predicts text it has not seen, whatever its tokenizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.data import IGNORED, Span, Tokens

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
    model: nn.Module,
    tokens: Tokens,
    spans: Sequence[Span],
    token_bytes: Tensor,
    stop: Callable[[], bool] = lambda: False,
) -> float | None:
    """Over the spans, each seen alone. None if there is no text in them, or if `stop` came true meanwhile."""
    nats, count = 0.0, 0
    training = model.training
    model.eval()
    spans = sorted(spans, key=lambda span: span.stop - span.start)  # equal lengths together: little padding
    for start in range(0, len(spans), ROWS):
        if stop():
            break
        rows = [tokens.read(span) for span in spans[start : start + ROWS]]
        ids = nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=True)  # (B, T + 1)
        learnt = nn.utils.rnn.pad_sequence([row for _, row in rows], batch_first=True)[:, 1:]
        targets = ids[:, 1:]
        counted = learnt & (token_bytes[targets] > 0)  # not the special tokens: they are no text
        loss = F.cross_entropy(
            model(ids[:, :-1]).flatten(0, 1),
            targets.masked_fill(~counted, IGNORED).flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )
        nats += loss.item()
        count += int(token_bytes[targets[counted]].sum())
    model.train(training)
    return nats / math.log(2) / count if count and not stop() else None
