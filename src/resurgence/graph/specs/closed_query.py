"""Queries over the rows of closed windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.specs.base import Definition, Spec
from resurgence.graph.values import Position
from resurgence.ids import OperatorId


class ClosedQuerySpec(Spec):
    """A batch query over the rows of closed windows: joins, aggregates, window functions. It is
    stateless, because its inputs emit all rows of a window in one epoch.

    `sql` is a complete Spark SQL query; `{input_0}`, `{input_1}`, … are the inputs.
    """

    kind: Literal["closed_query"] = "closed_query"
    inputs: tuple[OperatorId, ...]
    sql: str
    position: Position | None = None

    is_transparent: ClassVar[bool] = True
    aligns_inputs: ClassVar[bool] = True
    shuffles: ClassVar[str | None] = "the shuffles of its queries over closed windows"

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return self.inputs

    def definition(self, needed: set[str] | None) -> Definition:
        return Definition.reading_names([self.sql])

    def explain(self, parallelism: int) -> Iterator[str]:
        yield f"{self.id}: query over closed windows"
        yield f"  inputs       {', '.join(self.inputs)}"
        yield f"  computes     {self.sql}"
        yield "  state        none: all rows of a window arrive in one epoch"
