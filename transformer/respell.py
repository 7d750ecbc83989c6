"""A trained decoder in another vocabulary: a token begins as the mean of those by which it was spelt before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from transformer.model import Transformer
from transformer.tokenizer import UNDECIDED, Tokenizer


def spellings(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """By the new id, the old ids of the same text. Empty for part of a character, and for what is no text."""
    behind = new.encode_plain("a")  # some tokenizers drop the space of a first word
    start = len(new.decode(behind))
    return [_spelling(old, new.piece(id), new.decode([*behind, id])[start:]) for id in range(new.size)]


def _spelling(old: Tokenizer, piece: str | None, text: str) -> list[int]:
    if piece is not None and (same := old.id(piece)) is not None:
        return [same]
    return [] if UNDECIDED in text else old.encode_plain(text)


@torch.no_grad()
def respell(model: Transformer, spelt: Sequence[Sequence[int]], vocab_size: int) -> Transformer:
    """The model with as large a vocabulary. A token that was not spelt begins as the mean of all."""
    new = Transformer(replace(model.config, vocab_size=vocab_size))
    known = dict(model.named_parameters())
    for name, parameter in new.named_parameters():
        old = known[name]
        if name in ("embed.weight", "head.weight", "head.bias"):
            parameter.copy_(old.mean(0).expand_as(parameter))
            for id, ids in enumerate(spelt):
                if ids:
                    parameter[id] = old[list(ids)].mean(0)
        else:
            parameter.copy_(old)
    return new
