"""Updating queries: aggregates without a window, joins, the newest row by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.specs.base import Definition, Spec, duration_text, subtasks_in_words
from resurgence.graph.values import Expression, Position, Value
from resurgence.ids import OperatorId


class UpdatingInput(Value):
    """What an updating query keeps of one input: these columns, by these keys among them."""

    operator: OperatorId
    columns: tuple[Expression, ...]
    keys: tuple[str, ...]
    is_updating: bool = False
    """Its rows carry `CHANGE`."""


class UpdatingQuerySpec(Spec):
    """A query whose result changes as rows come: aggregates without a window, joins, the newest row
    by key. It keeps the rows of its inputs by key, and gives the changes of its result.

    `sql` is a whole query in Spark SQL, right for the rows of any set of keys by itself;
    `{input_0}`, `{input_1}`, … stand for the kept rows. Inputs have as many keys as each other;
    none means that all rows belong together.
    """

    kind: Literal["updating_query"] = "updating_query"
    inputs: tuple[UpdatingInput, ...]
    sql: str
    ttl_micros: int | None = None
    """Keys without a change for so long are forgotten."""
    aggregates: tuple[AggregateCall, ...] | None = None
    """Where the query is one aggregation by the keys: its calls, over the kept columns. None to
    call: each key once.
    """
    keep_micros: int | None = None
    """Rows are forgotten when the watermark is so much beyond their event time: what they could
    meet is late.
    """
    position: Position | None = None

    has_state: ClassVar[bool] = True
    is_durable: ClassVar[bool] = True

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return tuple(each.operator for each in self.inputs)

    @property
    def rows_in_words(self) -> str:
        return f"the touched keys of {self.id}"

    @property
    def job_in_words(self) -> str:
        return "one shuffle, writes state files"

    def definition(self, needed: set[str] | None) -> Definition:
        return Definition.reading_names(
            [
                self.sql,
                self.ttl_micros,
                self.keep_micros,
                *([[each.name, each.sql] for each in fed.columns] for fed in self.inputs),
                *([*fed.keys] for fed in self.inputs),
            ]
        )

    def explain(self, parallelism: int) -> Iterator[str]:
        yield f"{self.id}: updating query"
        for number, each in enumerate(self.inputs):
            yield f"  input        {each.operator} as input_{number}"
            yield f"  keys         {', '.join(each.keys) or 'none: all rows belong together'}"
            yield f"  keeps        {', '.join(f'{one.name} = {one.sql}' for one in each.columns)}"
        yield f"  computes     {self.sql}"
        yield f"  parallelism  {subtasks_in_words(parallelism)}, by hash of the keys"
        kept = "the rows of all inputs" if len(self.inputs) > 1 else "the rows"
        if self.aggregates is not None:
            kept = "the rows, or for each key what they add up to where that is exact"
        yield f"  state        KeyTable 'rows': {kept}, by key"
        dropped = "never"
        if self.ttl_micros:
            dropped = f"a key that has not changed for {duration_text(self.ttl_micros)}"
        elif self.keep_micros is not None:
            kept_for = f"{duration_text(self.keep_micros)} " if self.keep_micros else ""
            dropped = f"a row, when the watermark is {kept_for}beyond its event time"
        yield f"  dropped      {dropped}"
