"""Attention of a real model beside transformers' own: `python -m tests.attention DIRECTORY [TEXT...]`.

For every text, the largest difference of any weight of any head. The exit code is 1 if one is above 1e-5.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

from tests.reference import load_reference
from tests.transformer.test_recording import Everything
from transformer.recording import Recorder
from weights.load import Loaded, load

ALLOWED = 1e-5
TEXTS = ("The animal didn't cross the street because it was too tired.", "我吃了一个苹果，然后吃了一个香蕉")


@torch.inference_mode()
def distance(loaded: Loaded, reference: nn.Module, text: str) -> tuple[int, float]:
    """Tokens, and the largest difference between two weights."""
    ids = torch.tensor([loaded.tokenizer.encode(text).ids])
    ours = Everything(loaded.model.config, ids.shape[1])
    loaded.model.hidden(ids, tap=Recorder(ours))
    theirs = torch.cat(reference(ids, output_attentions=True).attentions)
    return ids.shape[1], float((ours.weights - theirs).abs().max())


def main(directory: str, *texts: str) -> int:
    loaded, reference = load(directory, dtype="fp32"), load_reference(Path(directory))
    most = 0.0
    for text in texts or TEXTS:
        tokens, error = distance(loaded, reference, text)
        print(f"{error:.1e}  {tokens} tokens  {text}")
        most = max(most, error)
    return int(most > ALLOWED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
