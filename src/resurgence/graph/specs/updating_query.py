"""Updating queries: aggregates without a window, joins, deduplication by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.aggregate_call import AggregateCall, SortOrder
from resurgence.graph.specs.base import Definition, Spec, duration_text, subtasks_in_words
from resurgence.graph.values import Expression, Position, Value
from resurgence.ids import OperatorId


class UpdatingInput(Value):
    """The state of an updating query for one input: these columns, keyed by `keys` among them."""

    operator: OperatorId
    columns: tuple[Expression, ...]
    keys: tuple[str, ...]
    is_updating: bool = False
    """Its rows have `CHANGE`."""


class FirstRows(Value):
    """The first rows of each key, in an order: Top-N and deduplication."""

    limit: int
    order: tuple[SortOrder, ...]
    """Over the stored columns."""
    number: str
    """The name of a row's number, from 1, in `results`."""
    results: tuple[Expression, ...]
    """Over the stored columns and the number."""


class InnerJoin(Value):
    """An inner join of two append-only streams: each of its rows stays."""

    condition: str
    """Over the stored columns of both, which have different names."""
    results: tuple[Expression, ...]


class UpdatingQuerySpec(Spec):
    """A query that produces a changelog: aggregates without a window, joins, deduplication by key.
    It stores the rows of its inputs by key.

    `sql` is a complete Spark SQL query that is correct for the rows of any subset of the keys;
    `{input_0}`, `{input_1}`, … are the stored rows. All inputs have the same number of keys;
    without keys all rows form one group.
    """

    kind: Literal["updating_query"] = "updating_query"
    inputs: tuple[UpdatingInput, ...]
    sql: str
    ttl_micros: int | None = None
    """State TTL: keys without a change for this time expire."""
    aggregates: tuple[AggregateCall, ...] | None = None
    """If the query is an aggregation by the keys: its calls, over the stored columns. Empty: each
    key once.
    """
    first_rows: FirstRows | None = None
    """If the query is a Top-N by the keys. Over append-only input no other rows are needed."""
    inner_join: InnerJoin | None = None
    """If the query is an inner join of append-only streams: its changes are the new pairs."""
    keep_micros: int | None = None
    """Rows expire when the watermark is this far beyond their event time: all possible matches
    would be late.
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

    @property
    def may_have_one_row_per_group(self) -> bool:
        return self.aggregates is not None or self._stores_first_rows

    @property
    def _stores_first_rows(self) -> bool:
        return self.first_rows is not None and not self.inputs[0].is_updating

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
            yield f"  keys         {', '.join(each.keys) or 'none: all rows form one group'}"
            yield f"  stores       {', '.join(f'{one.name} = {one.sql}' for one in each.columns)}"
        yield f"  computes     {self.sql}"
        yield f"  parallelism  {subtasks_in_words(parallelism)}, by hash of the keys"
        stored = "the rows of all inputs" if len(self.inputs) > 1 else "the rows"
        if self.aggregates is not None:
            stored = "accumulators, or the rows if an aggregate has none"
        elif self.first_rows is not None and self._stores_first_rows:
            count = self.first_rows.limit
            stored = "the first row" if count == 1 else f"the first {count:,} rows"
        yield f"  state        KeyTable 'rows': {stored}, by key"
        dropped = "never"
        if self.ttl_micros:
            dropped = f"a key that has not changed for {duration_text(self.ttl_micros)}"
        elif self.keep_micros is not None:
            beyond = f"{duration_text(self.keep_micros)} " if self.keep_micros else ""
            dropped = f"a row, when the watermark is {beyond}beyond its event time"
        yield f"  dropped      {dropped}"
