"""Late rows of a window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from resurgence.graph.specs.base import Definition, Spec
from resurgence.ids import OperatorId


class LateRowsSpec(Spec):
    """The rows of a window's input that arrive after all their windows have closed."""

    kind: Literal["late_rows"] = "late_rows"
    input: OperatorId
    window: OperatorId

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return (self.input, self.window)

    @property
    def row_ids(self) -> tuple[OperatorId, ...]:
        return (self.input,)

    def definition(self, needed: set[str] | None) -> Definition:
        return Definition(["late", self.window], None)

    def explain(self, parallelism: int) -> Iterator[str]:
        yield f"{self.id}: late rows"
        yield f"  input        {self.input}"
        yield f"  filter       rows whose windows in {self.window} have all closed"
        yield "  state        none"
