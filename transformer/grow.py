"""A trained decoder made larger without changing what it says: new parts say nothing until they have learnt to."""

from __future__ import annotations

import torch

from transformer.config import Config
from transformer.init import initialise
from transformer.model import Transformer
from transformer.pieces import pieces


@torch.no_grad()
def grow(model: Transformer, config: Config, seed: int) -> Transformer:
    """The model as one of a `larger` config. What reads the new numbers of the residual stream starts at random, what
    writes them at zero, and so does what the new heads, MLP rows and layers add."""
    old = {p.name: p.of(model.get_parameter(p.parameter)) for p in pieces(model)}
    new = Transformer(config)
    initialise(new, seed)
    shrink = (model.config.width / config.width) ** 0.5  # of the root mean square, by numbers that are zero
    for piece in pieces(new):
        if (known := old.get(piece.name)) is None:
            continue
        target = piece.of(new.get_parameter(piece.parameter))
        of_the_stream = "norm" in piece.name and known.shape == (model.config.width,)
        if of_the_stream:
            target.fill_(known.mean())
        elif piece.name in ("embed.weight", "head.weight", "position.weight"):
            target.zero_()
        target[tuple(map(slice, known.shape))] = known
        if of_the_stream:
            target.mul_(shrink)
    return new
