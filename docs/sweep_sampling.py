"""How the embedded model writes with different sampling settings, as another model judges it.

    python docs/sweep_sampling.py JUDGE

JUDGE is a larger model of English, say a GGUF file of SmolLM2. For each setting fable goes on with ten openings,
twice each. Of what it writes the table shows the judge's bits per byte (low: fluent, or dull), the share of groups of
four words that stood in the same story before (high: it goes round in circles), and of different words among all words
of all stories (low: always the same story).
"""

from __future__ import annotations

import math
import sys
from itertools import product

import torch

from transformer.generate import Request, generate_many, new_cache
from transformer.sampling import Sampling
from weights.load import Loaded, load

OPENINGS = (
    "Once upon a time", "The little dragon was afraid of", "Tom and Lily went to the park.", "A fox met a crow",
    "Ben lost his red ball.", "One day, a girl named Sara", "The old king had three sons.", "It was raining, and",
    "There was a small boat", "The cat and the mouse",
)  # fmt: skip
SEEDS = range(2)
LENGTH = 160  # tokens


def stories(fable: Loaded, sampling: Sampling) -> list[tuple[str, str]]:
    """Openings with what is written behind them."""
    requests = [
        Request(fable.tokenizer.encode(opening).ids, sampling, LENGTH, fable.eos, seed)
        for opening, seed in product(OPENINGS, SEEDS)
    ]
    waiting = iter(requests)
    for _ in generate_many(fable.model, new_cache(fable.model, len(requests)), lambda wait: next(waiting, None)):
        pass
    texts = (fable.tokenizer.decode([i for i in request.text if i not in fable.eos]) for request in requests)
    return [(opening, text) for (opening, _), text in zip(product(OPENINGS, SEEDS), texts, strict=True)]


@torch.inference_mode()
def bits_per_byte(judge: Loaded, written: list[tuple[str, str]]) -> float:
    """Of the continuations alone."""
    nats, size = 0.0, 0
    for opening, text in written:
        known = len(judge.tokenizer.encode_plain(opening))
        ids = torch.tensor(judge.tokenizer.encode_plain(opening + text))
        logprobs = judge.model(ids[None, :-1])[0].log_softmax(-1)
        nats -= float(logprobs.gather(1, ids[1:, None])[known - 1 :].sum())
        size += len(text.encode())
    return nats / math.log(2) / size


def repeated(text: str, group: int = 4) -> float:
    words = text.split()
    groups = [tuple(words[i : i + group]) for i in range(len(words) - group + 1)]
    return 1 - len(set(groups)) / len(groups) if groups else 0.0


def main() -> None:
    fable, judge = load("fable"), load(sys.argv[1])
    print("| temperature | min-p | top-p | bits per byte | repeated | different words |\n|-|-|-|-:|-:|-:|")
    for temperature, (min_p, top_p) in product((0.5, 0.7, 0.9), ((0.0, 1.0), (0.05, 1.0), (0.1, 1.0), (0.0, 0.9))):
        sampling = Sampling(temperature=temperature, top_k=0, top_p=top_p, min_p=min_p)
        written = stories(fable, sampling)
        words = [word for _, text in written for word in text.lower().split()]
        circles = sum(repeated(text) for _, text in written) / len(written)
        found = f"{bits_per_byte(judge, written):.3f} | {circles:.1%} | {len(set(words)) / len(words):.1%}"
        print(f"| {temperature} | {min_p:g} | {top_p:g} | {found} |", flush=True)


if __name__ == "__main__":
    main()
