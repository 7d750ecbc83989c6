"""Teachers in eight bits on both sides of every product: several times as fast, and nearly what they would have said.

Unlike `int8`, whose weights alone are rounded, this rounds what is multiplied with them as well, each row by itself.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn

from transformer.int8 import Codes, Int8Linear, matrices, quantize_rows, replace_matrix
from transformer.linear import Linear
from transformer.model import Transformer
from transformer.native import plain_floats, pointer


@torch.no_grad()
def coarsen(model: Transformer, ids: Tensor, library: ctypes.CDLL | None = None) -> None:
    """All products but the last one, whose rounding would show directly in what is predicted. `ids` (B, T) are text of
    the kind that the model is going to read."""
    largest = _largest_inputs(model, ids)
    for name in matrices(model):
        place = name.removesuffix(".weight")
        if place == "head":
            continue
        weight = model.get_parameter(name)
        # A few columns are many times as large as the others and would leave these no steps: weights and what is
        # multiplied with them share the difference (SmoothQuant, arXiv:2211.10438).
        ease = (largest[place] / weight.abs().amax(0).clamp(min=1e-8)).sqrt_().clamp_(min=1e-4)
        replace_matrix(model, name, quantize_rows(weight * ease), CoarseLinear)
        linear = model.get_submodule(place)
        assert isinstance(linear, CoarseLinear)
        linear.prepare(1 / ease, library)


def _largest_inputs(model: Transformer, ids: Tensor) -> dict[str, Tensor]:
    """By module, the largest size of each column of what it multiplies: (K,)"""
    found: dict[str, Tensor] = {}

    def watch(name: str, x: Tensor) -> None:
        found[name] = x.abs().flatten(0, -2).amax(0)

    hooks = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: watch(name, inputs[0]))
        for name, module in model.named_modules()
        if isinstance(module, Linear)
    ]
    model(ids)
    for hook in hooks:
        hook.remove()
    return found


class CoarseLinear(Int8Linear):
    ease: Tensor  # (K,) what each column of the input is multiplied with first
    library: ctypes.CDLL | None

    def __init__(self, matrix: Codes, bias: nn.Parameter | None, sections: dict[str, int]):
        super().__init__(matrix, bias, sections)
        self.columns = matrix.codes.t().contiguous()  # (K, N), as the product wants it

    def prepare(self, ease: Tensor, library: ctypes.CDLL | None) -> None:
        self.ease, self.library = ease, library

    def forward(self, x: Tensor) -> Tensor:
        codes, steps = self._codes(x.flatten(0, -2).contiguous())  # (M, K), (M, 1)
        sums = torch._int_mm(codes, self.columns)  # (M, N)
        y = self._numbers(sums, steps).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias

    def _codes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self.library is None or not plain_floats(rows):
            return quantize_rows(rows * self.ease)[:2]
        codes, steps = torch.empty_like(rows, dtype=torch.int8), rows.new_empty(len(rows), 1)
        given, threads = (pointer(rows), pointer(self.ease), *rows.shape), torch.get_num_threads()
        self.library.tfm_to_codes(*given, pointer(codes), pointer(steps), threads)
        return codes, steps

    def _numbers(self, sums: Tensor, steps: Tensor) -> Tensor:
        if self.library is None or not plain_floats(steps):
            return sums * steps * self.matrix.scales.t()
        y, given = torch.empty_like(sums, dtype=torch.float32), map(pointer, (sums, steps, self.matrix.scales))
        self.library.tfm_from_sums(*given, *sums.shape, pointer(y), torch.get_num_threads())
        return y


def coarse_pays(device: str) -> bool:
    """Whether the processor multiplies bytes faster than numbers."""
    return device == "cpu" and torch.cpu._is_vnni_supported()
