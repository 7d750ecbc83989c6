"""Parameters as the matrices they fuse: `blocks.0.attention.qkv.weight` is q, k and v, each a view of it.

Files store the pieces, and an optimizer that orthogonalises must see them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from transformer.linear import Fused
from transformer.mlp import Mixture
from transformer.model import Transformer


class Piece(NamedTuple):
    name: str  # of the piece: blocks.0.attention.q.weight
    parameter: str  # that holds it: blocks.0.attention.qkv.weight
    expert: int | None  # which of a stack
    start: int  # rows of the parameter, or of that expert's matrix
    stop: int

    def of(self, parameter: Tensor) -> Tensor:
        matrix = parameter if self.expert is None else parameter[self.expert]
        return matrix[self.start : self.stop]


def pieces(model: Transformer) -> Iterator[Piece]:
    """Every parameter of the model once, in the order of `named_parameters`."""
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        module, parent = modules[owner], owner.rpartition(".")[0]
        if isinstance(module, Fused):
            start = 0
            for section, width in module.sections.items():
                yield Piece(f"{parent}.{section}.{leaf}", name, None, start, start + width)
                start += width
        elif isinstance(module, Mixture) and leaf in ("gate_up", "down"):
            for expert, matrix in enumerate(parameter):
                stack = f"{owner}.experts.{expert}"
                sections = ["down"] if leaf == "down" else ["gate", "up"]
                width = matrix.shape[0] // len(sections)
                for i, section in enumerate(sections):
                    yield Piece(f"{stack}.{section}.weight", name, expert, i * width, (i + 1) * width)
        else:
            yield Piece(name, name, None, 0, parameter.shape[0])
