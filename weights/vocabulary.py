"""A tokenizer of one's own: byte-level BPE, learnt from the training text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from transformer.errors import InputError
from weights.conversations import SPECIALS, read_conversations
from weights.documents import SEPARATOR, lot, read_parts, validation_share
from weights.sources import Source
from weights.strict_json import MEGABYTE

if TYPE_CHECKING:
    from torch import Tensor

ENOUGH = 100 * MEGABYTE  # of text to learn from
LONGEST = 32  # bytes of a token: a line of dashes is not one word

WORD = re.compile(r"\S{256}")  # longer ones are cut: to count pairs in them takes the square of their length

Report = Callable[[int], None]  # bytes of text read so far


def train_tokenizer(sources: list[Source], vocab_size: int, report: Report) -> Tokenizer:
    """Any text can be encoded with it, and it adds nothing by itself. The vocabulary may turn out smaller."""
    specials = [SEPARATOR, *(SPECIALS if has_conversations(sources) else ())]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(alphabet) + len(specials)
    if vocab_size < least:
        raise InputError(f"a vocabulary of {vocab_size} is too small: all bytes and {specials[0]} need {least}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        initial_alphabet=alphabet,
        max_token_length=LONGEST,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_text(sources, report), trainer)
    return tokenizer


def has_conversations(sources: list[Source]) -> bool:
    return any(file.suffix == ".jsonl" for source in sources for file in source.files())


def _training_text(sources: list[Source], report: Report) -> Iterator[str]:
    """The training documents, thinned out by their own lots: where there are more than enough, and light sources
    beside heavy ones, so that the vocabulary suits the text as the model will meet it."""
    total = sum(source.size() for source in sources)
    held_out = validation_share(total)
    heaviest = max(source.weight for source in sources)
    done = 0
    for source in sources:
        wanted = held_out + (1 - held_out) * min(1.0, ENOUGH / max(total, 1)) * source.weight / heaviest
        for text in (text for file in source.files() for text in texts(file)):
            done += len(text.encode())
            report(done)
            if held_out <= lot(text) <= wanted:
                yield WORD.sub("\\g<0>\n", text)


def texts(file: Path) -> Iterator[str]:
    """The documents of a file, long ones in parts, or its conversations."""
    if file.suffix == ".jsonl":
        yield from (conversation.text for conversation in read_conversations(file))
    else:
        yield from (part.text for part in read_parts(file))


def token_bytes(tokenizer: Tokenizer, vocab_size: int) -> Tensor:
    """How many bytes of text each token stands for; 0 for special tokens. (V,)"""
    import torch

    counts = torch.zeros(vocab_size, dtype=torch.int64)
    byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
    special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    for piece, id in tokenizer.get_vocab().items():
        if id in special:
            continue
        if byte_level:
            counts[id] = len(piece)  # its alphabet has a letter a byte
        elif piece.startswith("<0x") and piece.endswith(">"):
            counts[id] = 1
        else:
            counts[id] = len(piece.replace("▁", " ").encode())
    return counts
