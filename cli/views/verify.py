"""--verify: the same numbers by other ways, and whether they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.render import Cell, Column, Table
from cli.views.view import View, number
from transformer.explain.verify import Check, verify

if TYPE_CHECKING:
    from torch import Tensor


class VerifyView(View):
    key = "verify"
    caveat = "a pass says that these numbers are the model's own; what they mean is another question"

    def finish(self, x: Tensor) -> None:
        import torch

        with torch.inference_mode():
            self.checks: list[Check] = verify(self.subject.model, self.subject.ids)

    def failed(self) -> bool:
        return not all(check.passed for check in self.checks)

    def data(self) -> list[dict[str, Any]]:
        return [
            {"check": c.name, "value": number(c.value), "bound": number(c.bound), "passed": c.passed}
            for c in self.checks
        ]

    def records(self) -> list[dict[str, Any]]:
        return self.data()

    def tables(self, width: int) -> list[Table]:
        columns = [Column("check"), Column("largest", right=True), Column("allowed", right=True), Column("")]
        body: list[list[Cell | str]] = [
            [c.name, f"{c.value:.2g}", f"{c.bound:.2g}", Cell("ok" if c.passed else "OUT OF BOUNDS", style="bold")]
            for c in self.checks
        ]
        return [Table("verified against other ways to compute the same", columns, body)]
