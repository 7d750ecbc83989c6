"""One token: where it reads, layer by layer, and who reads it later."""

from __future__ import annotations

import torch

from transformer.config import Config
from transformer.explain.overview import Sharp
from transformer.recording import Observer, Rows


class Reads(Observer):
    """All heads' weights of one row: `weights` (L, H, n)."""

    def __init__(self, config: Config, length: int, token: int):
        self.rows, self.token = (token,), token
        self.weights = torch.zeros(len(config.layers), config.heads, token + 1)

    def memory(self) -> int:
        return 4 * self.weights.numel()

    def attention(self, rows: Rows) -> None:
        self.weights[rows.layer][:, rows.keys] = rows.weights[:, 0].float().cpu()


class ReadBy(Observer):
    """What later tokens give to one token: averaged over all heads in `mean` (n,), and the head that gives most."""

    def __init__(self, config: Config, length: int, token: int):
        self.token = token
        self.rows: range = range(token + 1, length)
        self.share = 1.0 / (len(config.layers) * config.heads)
        self.mean, self.most = torch.zeros(length), torch.zeros(length)
        self.layer, self.head = torch.zeros(2, length, dtype=torch.int64)

    def attention(self, rows: Rows) -> None:
        if not rows.keys.start <= self.token < rows.keys.stop:
            return
        given = rows.weights[:, :, self.token - rows.first].float().cpu()  # (H, R)
        i = rows.queries.cpu()
        self.mean[i] += given.sum(0) * self.share
        most, head = given.max(0)
        better = most > self.most[i]
        self.most[i[better]], self.layer[i[better]], self.head[i[better]] = most[better], rows.layer, head[better]

    def sharpest(self, i: int) -> Sharp:
        return Sharp(int(self.layer[i]), int(self.head[i]), self.token, float(self.most[i]))
