"""tfm train beside transformers' GPT2LMHeadModel: as many parameters, the same text and threads, both eager, in fp32.

    python -m bench train                        tokens a second, in turns
    python -m bench.train TEXT… --minutes 20     bits per byte of unseen text: theirs after that time, ours after half

Theirs is trained as people do: AdamW with a learning rate of 1e-3, betas .9 and .95, weight decay .1, 40 steps of
warm-up and a cosine. Ours as `tfm train` does by itself, with the same batch.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from transformers import GPT2Config, GPT2LMHeadModel

from cli.memory import keep_freed_memory
from transformer.accelerate import accelerate_training
from transformer.data import Mixture, Strand
from transformer.evaluate import bits_per_byte, windows
from transformer.init import initialise
from transformer.loss import cross_entropy
from transformer.model import Transformer
from transformer.optim import build_optimizers
from transformer.parallel import World
from transformer.schedule import Budget, Place, Recipe
from transformer.shape import Shape, choose, decoder
from transformer.train import Feed, Objective, train
from weights.base import fresh_base
from weights.corpus import Corpus, encode_corpus, open_corpus
from weights.native.library import find_native
from weights.sources import merged, parse_sources
from weights.vocabulary import train_tokenizer

SHAPE = {"layers": 6, "width": 256, "heads": 4, "context": 256, "vocab_size": 4096}
ROWS = 16  # samples a step
LR, WARMUP = 1e-3, 40  # theirs
VALIDATION = 400  # windows of unseen text


class GPT2(nn.Module):
    """GPT2LMHeadModel with the signature of ours."""

    def __init__(self, shape: Shape):
        super().__init__()
        torch.manual_seed(0)
        self.model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=shape.vocab_size, n_positions=shape.context, n_embd=shape.width, n_layer=shape.layers,
                n_head=shape.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
                bos_token_id=0, eos_token_id=0,
            )
        )  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids).logits


def ours(shape: Shape, native: bool = True) -> Transformer:
    """As `tfm train` makes it: with the compiled kernels, if there are any."""
    model = Transformer(decoder(shape))
    initialise(model, 0)
    if native and (library := find_native()) is not None:
        accelerate_training(model, library)
    return model


def their_optimizer(model: nn.Module) -> AdamW:
    return AdamW(model.parameters(), LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


class Trainer:
    """One side of the comparison of speeds, in a process of its own."""

    def __init__(self, optimizer: str, native: bool, threads: int):
        """`optimizer` is muon or adamw for tfm, gpt2 for the other side; `native` is with the compiled kernels."""
        keep_freed_memory()  # for both, though only tfm does it by itself
        torch.set_num_threads(threads)
        shape = choose([], SHAPE)
        self.model: nn.Module = GPT2(shape) if optimizer == "gpt2" else ours(shape, native)
        self.optimizers: list[Optimizer] = [their_optimizer(self.model)]
        if isinstance(self.model, Transformer):
            recipe = Recipe(optimizer="muon" if optimizer == "muon" else "adamw")
            self.optimizers = build_optimizers(self.model, recipe, World())
        self.ids = torch.randint(
            shape.vocab_size, (ROWS, shape.context + 1), generator=torch.Generator().manual_seed(0)
        )

    def operations(self) -> int:
        """Of a token, as the field counts: 6 for each parameter that is multiplied with, not those only looked up."""
        return 6 * sum(p.numel() for name, p in self.model.named_parameters() if p.ndim > 1 and "wpe" not in name)

    def speed(self, steps: int) -> float:
        """Tokens a second."""
        started = time.perf_counter()
        for _ in range(steps):
            logits, targets = self.model(self.ids[:, :-1]).flatten(0, 1), self.ids[:, 1:].flatten()
            if isinstance(self.model, Transformer):
                loss = cross_entropy(logits, targets) / len(targets)
            else:
                loss = F.cross_entropy(logits, targets)
            _update(self.model, loss, self.optimizers)
        return steps * ROWS * (self.ids.shape[1] - 1) / (time.perf_counter() - started)


def _update(model: nn.Module, loss: Tensor, optimizers: list[Optimizer]) -> None:
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def prepared(texts: list[str], directory: Path) -> tuple[Corpus, Shape]:
    """Encoded once, for both."""
    sources = merged(*parse_sources(texts))
    backend = train_tokenizer(sources, SHAPE["vocab_size"], lambda done: None)
    shape = choose([], SHAPE | {"vocab_size": backend.get_vocab_size()})
    base = fresh_base(backend, decoder(shape), chat=False)
    encode_corpus(sources, base, directory, lambda done: None)
    return open_corpus(directory, base), shape


def validated(model: nn.Module, corpus: Corpus, context: int) -> float:
    spans = [span for source in corpus.sources.values() for span in source.held_out()]
    chosen = windows(spans, context)[:VALIDATION]
    bits = bits_per_byte(model, corpus.valid, chosen, corpus.token_bytes, lambda: False, World())
    assert bits is not None
    return bits


def train_theirs(seconds: float, feed: Feed, shape: Shape) -> Iterator[tuple[float, nn.Module]]:
    """After each step the time it has taken so far, and the model."""
    model = GPT2(shape)
    optimizer = their_optimizer(model)
    spent, step = 0.0, 0
    while spent < seconds:
        started = time.monotonic()
        model.train()
        warm, cosine = min(1.0, (step + 1) / WARMUP), 0.5 * (1 + math.cos(math.pi * spent / seconds))
        optimizer.param_groups[0]["lr"] = LR * warm * cosine
        (b,) = feed.batches(range(step * ROWS, step * ROWS + ROWS), Place(), ROWS)
        _update(model, F.cross_entropy(model(b.ids).flatten(0, 1), b.targets.flatten()), [optimizer])
        step += 1
        spent += time.monotonic() - started
        yield spent, model


def train_ours(seconds: float, feed: Feed, shape: Shape) -> Iterator[tuple[float, nn.Module]]:
    model, recipe, at = ours(shape), Recipe(batch=ROWS, micro_batch=ROWS), Place()
    optimizers = build_optimizers(model, recipe, World())
    spent, started = 0.0, time.monotonic()
    for _ in train(model, optimizers, feed, Objective(recipe), Budget(seconds=seconds), at):
        spent += time.monotonic() - started
        at.seconds = spent  # its own time, without the other's
        yield spent, model
        started = time.monotonic()


def compare(texts: list[str], minutes: float) -> None:
    """Both learn in turns, a step at a time, so that whatever else the machine does hits both."""
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as directory:
        corpus, shape = prepared(texts, Path(directory))
        feed = Feed(
            corpus.train, Mixture([(Strand([s.train for s in corpus.sources.values()], shape.context), 1.0)], 0)
        )
        runs = {
            "transformers": train_theirs(60 * minutes, feed, shape),
            "tfm": train_ours(30 * minutes, feed, shape),
        }
        bits, clocks, steps = dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 0)
        models: dict[str, nn.Module] = {}
        while runs:
            name = min(runs, key=lambda name: clocks[name])  # the one that is behind goes on
            try:
                clocks[name], models[name] = next(runs[name])
                steps[name] += 1
            except StopIteration:
                del runs[name]
                bits[name] = validated(models.pop(name), corpus, shape.context)
                tokens = steps[name] * ROWS * shape.context
                print(
                    f"{name:14} {clocks[name] / 60:5.1f} min {tokens:12,} tokens {bits[name]:.4f} bits per byte",
                    flush=True,
                )
    verdict = "reaches" if bits["tfm"] <= bits["transformers"] else "does not reach"
    print(f"in half the time tfm {verdict} the bits per byte of transformers")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    compare(options.texts, options.minutes)


if __name__ == "__main__":
    main()
