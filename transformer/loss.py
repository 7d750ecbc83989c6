"""What training lowers: cross entropy, with the gradient that is known in closed form; and what teachers add."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transformer.data import IGNORED


class _CrossEntropy(torch.autograd.Function):
    """Torch goes back through the log-softmax and holds four tensors as large as the logits. The gradient is the
    predicted probability, less one where the target is, so two will do."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        ctx.save_for_backward(log_p, targets)
        return F.nll_loss(log_p, targets, ignore_index=IGNORED, reduction="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        log_p, targets = ctx.saved_tensors
        learnt = targets != IGNORED
        p = log_p.exp_()  # in its place: nobody needs it again
        p[learnt, targets[learnt]] -= 1
        return p.mul_((slope * learnt)[:, None]), None


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Logits (N, V) and targets (N,) -> nats in at least fp32, summed over the targets that are not IGNORED."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return _CrossEntropy.apply(logits.to(wide), targets)  # type: ignore[no-untyped-call]


def taught(logits: Tensor, targets: Tensor, predictions: Tensor, teachers: int) -> Tensor:
    """What to add to the cross entropy of logits (N, V) if the text is one voice and each teacher another.

    `predictions` are the probabilities (N, V) of one who speaks for all of them; they are written over. All cross
    entropies of a row share its log-sum, so what they differ by is linear in the logits."""
    learnt, voice = targets != IGNORED, teachers / (teachers + 1)
    shift = predictions.mul_(learnt[:, None] * -voice)
    shift[learnt, targets[learnt]] += voice
    return (shift.to(logits.dtype) * logits).sum(dtype=shift.dtype)
