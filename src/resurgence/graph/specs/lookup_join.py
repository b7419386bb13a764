"""Lookup joins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.specs.base import (
    Definition,
    Spec,
    column_names,
    duration_text,
    options_in_words,
    slug,
)
from resurgence.graph.values import Column, Expression, Value
from resurgence.ids import OperatorId


class LookupSpec(Value):
    """An external table that rows are joined with. All of it is read, and read again when it is
    older than `ttl_micros`; 0: in every epoch.
    """

    name: str
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...]
    ttl_micros: int


LookupJoinKind = Literal["inner", "left", "left_semi", "left_anti", "scalar"]


class LookupJoinSpec(Spec):
    """Joins each row with the rows of a lookup table that match `on`. Stateless: a row is joined
    with the table as its epoch reads it.

    All columns of the input are passed on. `found` are those of the table, under names that no
    column of the input has.
    """

    kind: Literal["lookup_join"] = "lookup_join"
    input: OperatorId
    table: LookupSpec
    join: LookupJoinKind
    """Left: an unmatched row is returned with nulls. Left semi: matched rows are returned unchanged.
    Left anti: unmatched rows are. Scalar: every row is returned, with the value of `scalar`.
    """
    on: Expression
    found: tuple[Expression, ...]
    scalar: Expression | None = None
    """Over the columns in `found`: a value of the single match, or an aggregate of all matches."""

    is_transparent: ClassVar[bool] = True
    shuffles: ClassVar[str | None] = "one for each lookup table that is too large to be broadcast"

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return (self.input,)

    def definition(self, needed: set[str] | None) -> Definition:
        """The definition has the name of the table, not its location."""
        types = {f"`{each.name}`": each.type for each in self.table.columns}
        conditions = [self.on.sql, *([self.scalar.sql] if self.scalar else [])]
        in_conditions = column_names(conditions)
        found = [
            [each.name, each.sql, types[each.sql]]
            for each in self.found
            if needed is None or each.name in needed | in_conditions
        ]
        parts = ["lookup", slug(self.table.name), self.join, *conditions, *found]
        # Columns of the input are passed on unchanged.
        return Definition(parts, None if needed is None else needed | in_conditions)

    def explain(self, parallelism: int) -> Iterator[str]:
        table = self.table
        again = f"every {duration_text(table.ttl_micros)}" if table.ttl_micros else "in every epoch"
        yield f"{self.id}: lookup join"
        yield f"  input        {self.input}"
        yield f"  looks up     table {table.name} through {table.connector}{options_in_words(table.options)}"
        yield f"  columns      {', '.join(f'{each.name} {each.type}' for each in table.columns)}"
        yield f"  join         {self.join}, on {self.on.sql}"
        yield "  version      the one cached at the epoch, whatever time of the row SYSTEM_TIME names"
        yield f"  state        none: the table is read again {again}"
