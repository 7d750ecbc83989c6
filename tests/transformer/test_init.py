from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from transformer.init import initialise
from transformer.model import Transformer
from transformer.shape import ARCHITECTURES, choose, decoder

SMALL = {"layers": 2, "width": 32, "heads": 2, "context": 16, "vocab_size": 300}


def fresh(preset: str, seed: int = 0) -> Transformer:
    model = Transformer(decoder(choose([preset], SMALL)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    initialise(model, seed)
    return model


@pytest.mark.parametrize("preset", ARCHITECTURES)
def test_a_fresh_model_knows_nothing(preset: str) -> None:
    ids = torch.arange(32).view(2, 16) * 7
    loss = F.cross_entropy(fresh(preset)(ids).flatten(0, 1), ids.flatten() + 1)
    assert abs(loss.item() - math.log(300)) < 0.5


@pytest.mark.parametrize("preset", ARCHITECTURES)
def test_every_block_starts_as_the_identity(preset: str) -> None:
    model = fresh(preset)
    written = [p for name, p in model.named_parameters() if name.endswith(("out.weight", "down.weight"))]
    assert len(written) == 4 and all(p.count_nonzero() == 0 for p in written)


def test_the_seed_decides() -> None:
    one, same, other = fresh("qwen3", 1), fresh("qwen3", 1), fresh("qwen3", 2)
    assert torch.equal(one.embed.weight, same.embed.weight) and not torch.equal(one.embed.weight, other.embed.weight)
