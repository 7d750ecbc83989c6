"""How much of what stands before a model makes use of: bits per byte of the same words, seeing more and more of it.

    python docs/context.py stories.txt HELD_OUT MODEL…

The words are those from byte 500 to 800 of the first documents that are long enough and whose lot is below HELD_OUT, so
that models with different vocabularies can stand side by side.
"""

from __future__ import annotations

import math
import sys
from itertools import islice
from pathlib import Path

import torch

from weights.documents import lot, read_parts
from weights.load import Loaded, load

DOCUMENTS = 24
SEEN = (60, 125, 250, 500)  # bytes before
FIRST, LAST = 500, 800
BLOCK = 100  # bytes asked for at once: the last of them see as much more


def stories(path: Path, held_out: float) -> list[str]:
    texts = (part.text for part in read_parts(path))
    return list(islice((t for t in texts if t.isascii() and len(t) >= LAST and lot(t) < held_out), DOCUMENTS))


def bits(model: Loaded, story: str, start: int, stop: int, seen: int) -> float:
    """Of story[start:stop], cut at spaces so that tokens end where it does."""
    first, start, stop = (story.rfind(" ", 0, place + 1) for place in (start - seen, start, stop))
    before, asked = (model.tokenizer.encode_plain(story[max(a, 0) : b]) for a, b in ((first, start), (start, stop)))
    ids = torch.tensor([*before, *asked])
    with torch.no_grad():
        log_p = model.model(ids[None, :-1])[0].float().log_softmax(-1)
    told = log_p[torch.arange(len(ids) - 1), ids[1:]][-len(asked) :]
    return -float(told.sum()) / math.log(2)


def main() -> None:
    texts = stories(Path(sys.argv[1]), float(sys.argv[2]))
    print("| bytes seen before |", *(f"{seen} |" for seen in SEEN))
    print("|-|" + "-:|" * len(SEEN))
    for name in sys.argv[3:]:
        model = load(name, dtype="fp32")
        row = []
        for seen in SEEN:
            blocks = [(story, start) for story in texts for start in range(FIRST, LAST, BLOCK)]
            row.append(sum(bits(model, story, at, at + BLOCK, seen) for story, at in blocks) / (BLOCK * len(blocks)))
        print(f"| {name} |", *(f"{value:.3f} |" for value in row), flush=True)


if __name__ == "__main__":
    main()
