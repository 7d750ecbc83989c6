"""From logits to the next id. A frozen value, pure: equal inputs and an equal generator give an equal id.

In order: penalties, top-k, top-p, min-p, temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.errors import InputError

FIRST_LOOK = 256  # candidates that nearly always hold the mass top-p asks for, so that nobody sorts a vocabulary


@dataclass(frozen=True, kw_only=True)
class Sampling:
    temperature: float = 0.8  # 0 takes the likeliest
    top_k: int = 40  # 0 keeps all
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0  # divides what stood in prompt or text
    presence_penalty: float = 0.0  # subtracted once from what stood in the text
    frequency_penalty: float = 0.0  # subtracted as often as it stood there

    def __post_init__(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, 100.0),
            ("top_k", 0, 2**31),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("repetition_penalty", 0.01, 100.0),
            ("presence_penalty", -100.0, 100.0),
            ("frequency_penalty", -100.0, 100.0),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name} must be between {low} and {high}, got {value}")

    def choose(self, logits: Tensor, prompt: Sequence[int], text: Sequence[int], random: torch.Generator) -> int:
        """The next id after prompt and text, from the logits (V,) at their end."""
        logits = self._penalised(logits, prompt, text)
        if self.temperature == 0:
            return int(logits.argmax())
        ids, probabilities = self.candidates(logits.double())
        draw = torch.rand((), generator=random, dtype=torch.float64)
        place = int(torch.searchsorted(probabilities.cumsum(0), draw.to(logits.device)))
        return int(ids[min(place, len(ids) - 1)])

    def distribution(self, logits: Tensor, prompt: Sequence[int], text: Sequence[int]) -> Tensor:
        """The probability of each id (V,) that `choose` draws from."""
        logits = self._penalised(logits, prompt, text).double()
        if self.temperature == 0:
            return torch.zeros_like(logits).index_fill_(0, logits.argmax(), 1.0)
        ids, probabilities = self.candidates(logits)
        return torch.zeros_like(logits).index_copy_(0, ids, probabilities)

    def candidates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The ids that may come, likeliest first where an order was needed, and their probabilities."""
        V = len(logits)
        if 0 < self.top_k < V:
            values, ids = logits.topk(self.top_k)
        elif self.top_p < 1:
            values, ids = self._likeliest(logits)
        else:
            values, ids = logits, torch.arange(V, device=logits.device)
        if self.top_p < 1:
            mass = (values - logits.logsumexp(0) if self.top_k == 0 else values.log_softmax(0)).exp()
            keep = mass.cumsum(0) - mass < self.top_p  # the one that crosses the mark stays
            keep[0] = True
            values, ids = values[keep], ids[keep]
        if self.min_p > 0:
            keep = values >= values.max() + torch.tensor(self.min_p, dtype=values.dtype).log()
            values, ids = values[keep], ids[keep]
        return ids, (values / self.temperature).softmax(0)

    def _likeliest(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """As many of the largest logits, sorted, as hold the mass of top-p."""
        total, count = logits.logsumexp(0), min(FIRST_LOOK, len(logits))
        values, ids = logits.topk(count)
        if (values - total).exp().sum() < self.top_p:
            values, ids = logits.sort(descending=True)
        return values, ids

    def _penalised(self, logits: Tensor, prompt: Sequence[int], text: Sequence[int]) -> Tensor:
        if self.repetition_penalty != 1:
            logits = logits.double()
            seen = torch.tensor([*{*prompt, *text}], dtype=torch.int64, device=logits.device)
            values = logits[seen]
            values = torch.where(values > 0, values / self.repetition_penalty, values * self.repetition_penalty)
            logits = logits.index_copy(0, seen, values)
        if (self.presence_penalty or self.frequency_penalty) and text:
            said = torch.tensor(text, dtype=torch.int64, device=logits.device)
            counts = torch.bincount(said, minlength=len(logits))
            logits = logits.double() - self.presence_penalty * (counts > 0) - self.frequency_penalty * counts
        return logits
