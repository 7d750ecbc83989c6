"""What attributions explain: one logit, or the difference of two, before any soft-cap bends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.model import Transformer


class Target(NamedTuple):
    """The logit of `token`, minus that of `foil` if there is one, said behind position `row`."""

    row: int
    token: int
    foil: int | None = None

    def direction(self, model: Transformer) -> tuple[Tensor, Tensor]:
        """The vector (C,) and the number that turn a normalised stream into this logit."""
        weight, bias = model.head.weight, model.head.bias
        rows = [self.token] if self.foil is None else [self.token, self.foil]
        signs = torch.tensor([1.0, -1.0][: len(rows)], dtype=weight.dtype, device=weight.device)
        vector = signs @ weight[rows]
        if model.config.embed_width is not None and isinstance(model.head_in, torch.nn.Linear):
            vector = vector @ model.head_in.weight
        offset = signs @ bias[rows] if bias is not None else vector.new_zeros(())
        return vector * model.config.logit_scale, offset * model.config.logit_scale

    def reader(self, model: Transformer) -> Callable[[Tensor], Tensor]:
        """The stream behind the last block (B, T, C) -> (B,)"""
        vector, offset = self.direction(model)
        return lambda x: model.final_norm(x[:, self.row]) @ vector + offset
