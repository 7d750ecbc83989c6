"""The logit lens: what each layer would predict if it were the last."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer.explain.predictions import log_probabilities
from transformer.explain.stream import Stream
from transformer.model import Transformer


class Lens(Stream):
    """Reads the stream behind the embedding and behind every block through the final norm, whose statistics are
    taken anew each time, and the head. All are (L + 1, positions, ...), the embedding first."""

    def __init__(self, model: Transformer, ids: Sequence[int], positions: Sequence[int], top: int):
        super().__init__(model, positions, self._read)
        self.model = model
        n = len(ids)
        self.actual = torch.tensor([ids[i + 1] if i + 1 < n else 0 for i in positions])
        shape = (len(model.blocks) + 1, len(positions))
        self.ids = torch.zeros(*shape, top, dtype=torch.int64)
        self.p = torch.zeros(*shape, top)
        self.actual_rank = torch.zeros(shape, dtype=torch.int64)  # 1: the likeliest; meaningless at the last token
        self.actual_p = torch.zeros(shape)

    def memory(self) -> int:
        return 4 * (3 * self.ids.numel() + 3 * self.actual_p.numel() + len(self.actual) * self.model.config.width)

    def _read(self, layer: int, x: Tensor) -> None:
        for rows, logp in log_probabilities(self.model, x):
            values, ids = logp.topk(self.ids.shape[-1])
            actual = logp.gather(1, self.actual[rows, None].to(logp.device))
            self.ids[layer + 1, rows], self.p[layer + 1, rows] = ids.cpu(), values.exp().float().cpu()
            self.actual_rank[layer + 1, rows] = (logp > actual).sum(1).cpu() + 1
            self.actual_p[layer + 1, rows] = actual[:, 0].exp().float().cpu()
