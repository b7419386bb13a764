"""The compiled dataflow: immutable operators, wired by id.

Expressions are Spark SQL text, already bound: every column in them is a column of the operator's
input, every function exists. A `Position` points back into the user's SQL so that a later complaint
can name the place. Nothing here knows Spark, storage or the parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from resurgence.graph.secrets import shown_value
from resurgence.ids import OperatorId

EVENT_TIME = "__event_time"
"""The hidden column that carries event time from a source to the operators that need it."""


class Value(BaseModel):
    """An immutable value that can be written as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Position(Value):
    """A place in the user's SQL, counted from 1."""

    line: int
    column: int


class Column(Value):
    """A declared column: a name and a Spark SQL type."""

    name: str
    type: str
    nullable: bool = True


class Expression(Value):
    """A named expression in Spark SQL over the columns of the operator's input."""

    name: str
    sql: str
    position: Position | None = None


class WatermarkSpec(Value):
    """How a source's watermark follows its rows: the maximum of `sql` over the rows read."""

    event_time: str
    sql: str
    delay_micros: int | None = None
    """Set if `sql` is event time less so much: the same, and much cheaper to compute."""


class AggregateCall(Value):
    """One aggregate of a window: `function(arguments) FILTER (WHERE condition)`. No arguments:
    count(*).
    """

    name: str
    function: str
    arguments: tuple[str, ...]
    condition: str | None = None
    position: Position | None = None


class SourceOperator(Value):
    """Reads a range of input per epoch."""

    kind: Literal["source"] = "source"
    id: OperatorId
    table: str
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...]
    watermark: WatermarkSpec | None = None

    @property
    def place(self) -> str:
        """Where its rows are: an offset means nothing elsewhere."""
        return _place(self.connector, self.options)


class QueryOperator(Value):
    """Stateless: an optional filter, then a projection."""

    kind: Literal["query"] = "query"
    id: OperatorId
    input: OperatorId
    where: Expression | None = None
    select: tuple[Expression, ...]


class WindowAggregateOperator(Value):
    """Groups rows by a tumbling window of event time and keys; gives a window's rows when the
    watermark passes it.

    Its output columns are `window` (struct of start and end), the keys, the aggregates.
    """

    kind: Literal["window_aggregate"] = "window_aggregate"
    id: OperatorId
    input: OperatorId
    width_micros: int
    keys: tuple[Expression, ...]
    aggregates: tuple[AggregateCall, ...]


class SinkOperator(Value):
    """Stages and commits what its input gives. Without columns it takes the schema of its input."""

    kind: Literal["sink"] = "sink"
    id: OperatorId
    input: OperatorId
    table: str
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...] | None = None

    @property
    def place(self) -> str:
        """Where its rows go: what was staged elsewhere cannot be committed here."""
        return _place(self.connector, self.options)


Operator = Annotated[
    SourceOperator | QueryOperator | WindowAggregateOperator | SinkOperator,
    Field(discriminator="kind"),
]


def _place(connector: str, options: Mapping[str, str]) -> str:
    return f"{connector} {shown_value('path', options.get('path', ''))}".strip()


class Graph(Value):
    """Operators in topological order: an operator's input stands before it."""

    operators: tuple[Operator, ...]

    def operator(self, operator_id: OperatorId) -> Operator:
        """The operator with that id."""
        return next(each for each in self.operators if each.id == operator_id)

    def sources(self) -> tuple[SourceOperator, ...]:
        return tuple(each for each in self.operators if isinstance(each, SourceOperator))

    def sinks(self) -> tuple[SinkOperator, ...]:
        return tuple(each for each in self.operators if isinstance(each, SinkOperator))

    def window_aggregates(self) -> tuple[WindowAggregateOperator, ...]:
        return tuple(each for each in self.operators if isinstance(each, WindowAggregateOperator))

    def durable(self) -> tuple[SourceOperator | WindowAggregateOperator | SinkOperator, ...]:
        """The operators that have something in a checkpoint."""
        return tuple(each for each in self.operators if not isinstance(each, QueryOperator))

    def upstream(self, operator_id: OperatorId) -> Iterator[Operator]:
        """The operators that feed this one, nearest first."""
        current = self.operator(operator_id)
        while not isinstance(current, SourceOperator):
            current = self.operator(current.input)
            yield current

    def sources_of(self, operator_id: OperatorId) -> tuple[OperatorId, ...]:
        """The sources whose watermarks this operator follows."""
        chain = (self.operator(operator_id), *self.upstream(operator_id))
        return tuple(each.id for each in chain if isinstance(each, SourceOperator))
