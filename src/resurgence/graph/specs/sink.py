"""Sinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.specs.base import Definition, Spec, options_in_words, place_of
from resurgence.graph.values import Column
from resurgence.ids import OperatorId


class SinkSpec(Spec):
    """Stages and commits the rows of its input. Without columns it uses the schema of its input."""

    kind: Literal["sink"] = "sink"
    input: OperatorId
    table: str
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...] | None = None
    keys: tuple[str, ...] = ()
    """The columns by which a deleted and an inserted row are paired into an update."""
    pairs_changes: bool = False
    """Its format writes the changes of a key as one record."""
    guarantee: str | None = None
    """The delivery guarantee, for EXPLAIN."""
    limit: int | None = None
    """The total number of rows that it writes."""

    @property
    def place(self) -> str:
        """The location that it writes to. Rows staged for another location cannot be committed."""
        return place_of(self.connector, self.options)

    is_durable: ClassVar[bool] = True

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return (self.input,)

    def definition(self, needed: set[str] | None) -> Definition:
        raise AssertionError(f"sink {self.id} has no readers")

    def explain(self, parallelism: int) -> Iterator[str]:
        yield f"{self.id}: sink"
        yield f"  input        {self.input}"
        yield f"  writes       table {self.table} through {self.connector}{options_in_words(self.options)}"
        if self.columns is not None:
            yield f"  columns      {', '.join(f'{each.name} {each.type}' for each in self.columns)}"
        if self.guarantee is not None:
            yield f"  guarantee    {self.guarantee}"
        yield "  state        staged and uncommitted output (GlobalTable)"
