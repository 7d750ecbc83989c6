"""What training lowers: cross entropy, with the gradient that is known in closed form; a teacher may have a say."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer.data import IGNORED
from transformer.lessons import recalled


class Told(NamedTuple):
    """A teacher's word on the same tokens: the target is `voice` times its prediction and the rest of one the text."""

    word: Tensor  # (N, V) logits, or the bytes in which a lesson is kept
    voice: float

    @property
    def logits(self) -> Tensor:
        return recalled(self.word) if self.word.dtype is torch.uint8 else self.word


class _CrossEntropy(torch.autograd.Function):
    """Torch goes back through the log-softmax and holds four tensors as large as the logits. The gradient is the
    predicted probability less what was told, and less the rest of one where the target is, so two will do."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, predictions: Tensor | None, voice: float) -> Tensor:
        log_p = logits.log_softmax(-1)
        ctx.save_for_backward(log_p, targets, predictions)
        ctx.voice = voice
        loss = (1 - voice) * F.nll_loss(log_p, targets, ignore_index=IGNORED, reduction="sum")
        if predictions is None:
            return loss
        return loss - voice * (predictions * log_p).sum(-1)[targets != IGNORED].sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
        log_p, targets, predictions = ctx.saved_tensors
        learnt = targets != IGNORED
        p = log_p.exp_()  # in its place: nobody needs it again
        if predictions is not None:
            p.sub_(predictions, alpha=ctx.voice)
        p[learnt, targets[learnt]] -= 1 - ctx.voice
        return p.mul_((slope * learnt)[:, None]), None, None, None


def cross_entropy(logits: Tensor, targets: Tensor, told: Told | None = None) -> Tensor:
    """Logits (N, V) and targets (N,) -> nats in at least fp32, summed over the targets that are not IGNORED."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    predictions, voice = (None, 0.0) if told is None else (told.logits.softmax(-1, dtype=wide), told.voice)
    return _CrossEntropy.apply(logits.to(wide), targets, predictions, voice)  # type: ignore[no-untyped-call]
