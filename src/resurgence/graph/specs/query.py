"""Filters and projections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.specs.base import Definition, Spec
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.ids import OperatorId

_EXPLODING = ("explode(", "explode_outer(")
"""Functions that change the number of rows, whether or not their value is read."""


class QuerySpec(Spec):
    """Stateless: an optional filter, then a projection."""

    kind: Literal["query"] = "query"
    input: OperatorId
    where: Expression | None = None
    select: tuple[Expression, ...]

    is_transparent: ClassVar[bool] = True

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return (self.input,)

    def definition(self, needed: set[str] | None) -> Definition:
        select = [
            [each.name, each.sql]
            for each in self.select
            if needed is None or each.name in needed or each.sql.startswith(_EXPLODING)
        ]
        return Definition.reading_names([self.where.sql if self.where else None, *select])

    def explain(self, parallelism: int) -> Iterator[str]:
        yield f"{self.id}: query"
        yield f"  input        {self.input}"
        if self.where:
            yield f"  filter       {self.where.sql}"
        for index, each in enumerate(item for item in self.select if item.name != EVENT_TIME):
            yield f"  {'computes' if index == 0 else '':<12} {each.name} = {each.sql}"
        yield "  state        none"
