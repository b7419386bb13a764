"""The compiled dataflow: immutable operators, wired by id.

Expressions are Spark SQL text, already bound: every column in them is a column of the operator's
input, every function exists. A `Position` points back into the user's SQL so that a later complaint
can name the place. Nothing here knows Spark, storage or the parser.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from resurgence.ids import OperatorId
from resurgence.secrets import shown_value

EVENT_TIME = "__event_time"
"""The hidden column that carries event time from a source to the operators that need it. For rows of
a window it is the window's last microsecond.
"""

PLANNED_AT = "__planned_at"
"""The hidden column that expressions read the planning time of the epoch from. The engine adds it to
the input of every operator whose expressions name it.
"""

CHANGE = "__change"
"""The hidden column of an updating result: 1 for a row that came, -1 for one that went. Over any
number of epochs, the rows that came less those that went are the batch answer so far.
"""


OPERATION = "__operation"
"""The hidden column of a source of keyed changes: `upsert`, `delete` or `truncate`."""

POSITION = "__position"
"""The hidden column that orders keyed changes within an epoch: a record's position in its input."""

WindowKind = Literal["tumble", "hop", "cumulate", "session", "asof"]


class Value(BaseModel):
    """An immutable value that can be written as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Position(Value):
    """A place in the user's SQL, counted from 1."""

    line: int
    column: int


class Expression(Value):
    """A named expression in Spark SQL over the columns of the operator's input."""

    name: str
    sql: str
    position: Position | None = None


class Column(Value):
    """A declared column: a name and a Spark SQL type."""

    name: str
    type: str
    """Empty if the column is computed and has the type of its expression."""
    nullable: bool = True
    generated: Expression | None = None
    """Set if the column is not read but computed, over the columns that are."""
    metadata: str | None = None
    """Set if it is not in the record but beside it: what the connector calls it."""


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


class SourceSpec(Value):
    """Reads a range of input per epoch."""

    kind: Literal["source"] = "source"
    id: OperatorId
    table: str
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...]
    watermark: WatermarkSpec | None = None
    idle_micros: int | None = None
    """Without rows for so long, it holds no watermark back."""
    max_future_micros: int | None = None
    """A row whose event time is farther ahead of the planning time is a bad record."""
    keys: tuple[str, ...] = ()
    """Set if its records are changes by key: its rows carry `OPERATION` and `POSITION`, and a
    NormaliseSpec makes a changelog of them.
    """

    @property
    def is_updating(self) -> bool:
        """Its rows carry `CHANGE`."""
        return self.options.get("format") == "debezium_json" and not self.keys

    @property
    def read_columns(self) -> tuple[Column, ...]:
        """The columns that the connector gives; the others are computed from them."""
        return tuple(each for each in self.columns if each.generated is None)

    @property
    def place(self) -> str:
        """Where its rows are: an offset means nothing elsewhere."""
        return _place(self.connector, self.options)


class QuerySpec(Value):
    """Stateless: an optional filter, then a projection."""

    kind: Literal["query"] = "query"
    id: OperatorId
    input: OperatorId
    where: Expression | None = None
    select: tuple[Expression, ...]


class UnionSpec(Value):
    """All rows of several inputs. Columns are matched by position, and have the names of the first."""

    kind: Literal["union"] = "union"
    id: OperatorId
    inputs: tuple[OperatorId, ...]


class AsofSpec(Value):
    """An ASOF join over the union of its two sides: each row of the left meets the newest row of the
    right with the same keys that is not newer than itself.
    """

    is_right: str
    """The column that says of which side a row is."""
    left: tuple[str, ...]
    right: tuple[str, ...]
    is_outer: bool
    """A row of the left that meets none stays, with nulls."""
    is_strict: bool
    """The row of the right must be older."""


class WindowAggregateSpec(Value):
    """Groups rows by a window of event time and keys; gives a window's rows when the watermark
    passes it.

    Its output columns are `window` (struct of start and end), the keys, the aggregates, and event
    time.
    """

    kind: Literal["window_aggregate"] = "window_aggregate"
    id: OperatorId
    input: OperatorId
    window: WindowKind = "tumble"
    width_micros: int
    """Of a session: the gap that ends it. Of cumulating windows: the width of the last one."""
    slide_micros: int | None = None
    """Of a hop: from the start of a window to the start of the next. Of cumulating windows: from the
    end of a window to the end of the next, which has the same start.
    """
    offset_micros: int = 0
    """How much later than 1970-01-01 00:00 UTC a window starts to which the others are aligned."""
    lateness_micros: int = 0
    """How far the watermark must be beyond the end of a window that closes."""
    by_processing_time: bool = False
    """The event time of its rows, and its watermark, are the planning time of their epoch."""
    keys: tuple[Expression, ...]
    aggregates: tuple[AggregateCall, ...]
    asof: AsofSpec | None = None
    """Set if rows are not aggregated but joined: each waits for the watermark to pass it. Its output
    columns are those of both sides, and event time.
    """


class LateRowsSpec(Value):
    """The rows of a window's input that come when all windows they belong to have closed."""

    kind: Literal["late_rows"] = "late_rows"
    id: OperatorId
    input: OperatorId
    window: OperatorId


class ClosedQuerySpec(Value):
    """A query over rows of windows that have closed, all at once: joins, aggregates, window
    functions. It keeps nothing, because its inputs give all rows of a window in one epoch.

    `sql` is a whole query in Spark SQL; `{input_0}`, `{input_1}`, … stand for the inputs.
    """

    kind: Literal["closed_query"] = "closed_query"
    id: OperatorId
    inputs: tuple[OperatorId, ...]
    sql: str
    position: Position | None = None


class UpdatingInput(Value):
    """What an updating query keeps of one input: these columns, by these keys among them."""

    operator: OperatorId
    columns: tuple[Expression, ...]
    keys: tuple[str, ...]
    is_updating: bool = False
    """Its rows carry `CHANGE`."""


class UpdatingQuerySpec(Value):
    """A query whose result changes as rows come: aggregates without a window, joins, the newest row
    by key. It keeps the rows of its inputs by key, and gives the changes of its result.

    `sql` is a whole query in Spark SQL, right for the rows of any set of keys by itself;
    `{input_0}`, `{input_1}`, … stand for the kept rows. Inputs have as many keys as each other;
    none means that all rows belong together.
    """

    kind: Literal["updating_query"] = "updating_query"
    id: OperatorId
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


class NormaliseSpec(Value):
    """Turns changes by key into a changelog that holds the whole row of every retraction. It keeps
    the last row of each key, without TTL.
    """

    kind: Literal["normalise"] = "normalise"
    id: OperatorId
    input: OperatorId
    keys: tuple[str, ...]


class LookupSpec(Value):
    """A table at rest that rows are joined with. It is read as a whole, and again when it is older
    than `ttl_micros`; 0: in every epoch.
    """

    name: str
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...]
    ttl_micros: int


LookupJoinKind = Literal["inner", "left", "left_semi", "left_anti", "scalar"]


class LookupJoinSpec(Value):
    """Gives each row the rows of a lookup table that `on` lets it meet. Stateless: a row meets the
    table as it is when an epoch reads it.

    All columns of the input stay as they are. `found` are those of the table, under names that no
    column of the input has.
    """

    kind: Literal["lookup_join"] = "lookup_join"
    id: OperatorId
    input: OperatorId
    table: LookupSpec
    join: LookupJoinKind
    """Left: a row that meets none stays, with nulls. Left semi and left anti: rows that meet one, or
    none, stay as they are. Scalar: every row stays, with the value that `scalar` gives for it.
    """
    on: Expression
    found: tuple[Expression, ...]
    scalar: Expression | None = None
    """Over the columns that are found: a value of the one row, or an aggregate of all."""


class SinkSpec(Value):
    """Stages and commits what its input gives. Without columns it takes the schema of its input."""

    kind: Literal["sink"] = "sink"
    id: OperatorId
    input: OperatorId
    table: str
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...] | None = None
    keys: tuple[str, ...] = ()
    """The columns by which a row that goes and one that comes are an update."""
    limit: int | None = None
    """It takes so many rows in all."""

    @property
    def place(self) -> str:
        """Where its rows go: what was staged elsewhere cannot be committed here."""
        return _place(self.connector, self.options)


OperatorSpec = Annotated[
    SourceSpec
    | QuerySpec
    | UnionSpec
    | WindowAggregateSpec
    | LateRowsSpec
    | ClosedQuerySpec
    | UpdatingQuerySpec
    | NormaliseSpec
    | LookupJoinSpec
    | SinkSpec,
    Field(discriminator="kind"),
]
StatelessSpec = QuerySpec | UnionSpec | ClosedQuerySpec | LookupJoinSpec
StatefulSpec = WindowAggregateSpec | UpdatingQuerySpec | NormaliseSpec
"""An operator that keeps rows in a state table."""
DurableSpec = SourceSpec | StatefulSpec | SinkSpec


def inputs_of(operator: OperatorSpec) -> tuple[OperatorId, ...]:
    """The operators that an operator reads."""
    match operator:
        case SourceSpec():
            return ()
        case UnionSpec() | ClosedQuerySpec():
            return operator.inputs
        case UpdatingQuerySpec():
            return tuple(each.operator for each in operator.inputs)
        case LateRowsSpec():
            return (operator.input, operator.window)
        case _:
            return (operator.input,)


def _is_by_processing_time(operator: OperatorSpec) -> bool:
    return isinstance(operator, WindowAggregateSpec) and operator.by_processing_time


def _place(connector: str, options: Mapping[str, str]) -> str:
    return f"{connector} {shown_value('path', options.get('path', ''))}".strip()


class Graph(Value):
    """Operators in topological order: an operator's input stands before it."""

    operators: tuple[OperatorSpec, ...]

    def operator(self, operator_id: OperatorId) -> OperatorSpec:
        """The operator with that id."""
        return next(each for each in self.operators if each.id == operator_id)

    def sources(self) -> tuple[SourceSpec, ...]:
        return tuple(each for each in self.operators if isinstance(each, SourceSpec))

    def sinks(self) -> tuple[SinkSpec, ...]:
        return tuple(each for each in self.operators if isinstance(each, SinkSpec))

    def window_aggregates(self) -> tuple[WindowAggregateSpec, ...]:
        return tuple(each for each in self.operators if isinstance(each, WindowAggregateSpec))

    def lookup_joins(self) -> tuple[LookupJoinSpec, ...]:
        return tuple(each for each in self.operators if isinstance(each, LookupJoinSpec))

    def lookup_tables(self) -> tuple[LookupSpec, ...]:
        """The tables at rest that rows are joined with, each once."""
        return tuple({each.table.name: each.table for each in self.lookup_joins()}.values())

    def updating_queries(self) -> tuple[UpdatingQuerySpec, ...]:
        return tuple(each for each in self.operators if isinstance(each, UpdatingQuerySpec))

    def normalisers(self) -> tuple[NormaliseSpec, ...]:
        return tuple(each for each in self.operators if isinstance(each, NormaliseSpec))

    def durable(self) -> tuple[DurableSpec, ...]:
        """The operators that have something in a checkpoint."""
        return tuple(each for each in self.operators if isinstance(each, DurableSpec))

    def upstream(self, operator_id: OperatorId) -> Iterator[OperatorSpec]:
        """The operators that feed this one, each once, nearest first."""
        seen = {operator_id}
        waiting = deque(inputs_of(self.operator(operator_id)))
        while waiting:
            current = waiting.popleft()
            if current not in seen:
                seen.add(current)
                operator = self.operator(current)
                yield operator
                waiting.extend(inputs_of(operator))

    def reads_changes(self, operator_id: OperatorId) -> bool:
        """Whether changes reach this operator as a source has them: a row may come and go, or go
        and come, in one epoch.
        """
        for each in map(self.operator, inputs_of(self.operator(operator_id))):
            if isinstance(each, SourceSpec) and each.is_updating:
                return True
            if isinstance(each, StatelessSpec) and self.reads_changes(each.id):
                return True
        return False

    def sources_of(self, operator_id: OperatorId) -> tuple[OperatorId, ...]:
        """The sources whose watermarks this operator follows: those that feed it, and those that
        feed what its rows meet in a closed query. Windows that meet must close in the same epoch.
        """
        return tuple(
            each.id
            for each in self.operators
            if each.id in self._follows(operator_id) and isinstance(each, SourceSpec)
        )

    def event_time_sources_of(self, operator_id: OperatorId) -> tuple[OperatorId, ...]:
        """The sources among `sources_of` whose event time counts: they feed the operator, or what
        it meets, without a window by processing time between.
        """
        followed = self._follows(operator_id)
        windows = {each.id for each in self.window_aggregates() if each.id in followed}
        seen: set[OperatorId] = set()
        waiting = deque({operator_id, *windows})
        while waiting:
            operator = self.operator(waiting.popleft())
            is_new = operator.id not in seen
            seen.add(operator.id)
            if is_new and not _is_by_processing_time(operator):
                waiting.extend(inputs_of(operator))
        return tuple(each.id for each in self.sources() if each.id in seen)

    def follows_planning_time(self, operator_id: OperatorId) -> bool:
        """Whether the planning time bounds the watermark of an operator: it is a window by
        processing time, is fed by one, or meets one.
        """
        followed = self._follows(operator_id)
        return any(each.id in followed for each in self.operators if _is_by_processing_time(each))

    def lag_micros(self, operator_id: OperatorId) -> int:
        """How far an operator is behind the watermarks of its sources: the same for all that meet.

        By the lateness that is allowed. And a session closes when the watermark is beyond its end,
        not at it: for every session, one over the other, a microsecond.
        """
        windows = [
            each for each in self.window_aggregates() if each.id in self._follows(operator_id)
        ]
        own = {each.id for each in windows} | {operator_id}
        sessions = max(
            sum(
                isinstance(fed, WindowAggregateSpec) and fed.window == "session"
                for fed in self.upstream(each)
            )
            for each in own
        )
        return sessions + max((each.lateness_micros for each in windows), default=0)

    def _brings_together(self, operator: OperatorSpec) -> bool:
        """Whether rows of several operators meet here, or in what is stateless before it."""
        inputs = inputs_of(operator)
        return len(inputs) > 1 or any(
            isinstance(each, StatelessSpec) and self._brings_together(each)
            for each in map(self.operator, inputs)
        )

    def _follows(self, operator_id: OperatorId) -> set[OperatorId]:
        """The operators that share this one's watermark, and all that feed them."""
        feeds = {
            each.id: {each.id, *(fed.id for fed in self.upstream(each.id))}
            for each in self.operators
            if isinstance(each, ClosedQuerySpec) and self._brings_together(each)
        }
        found = {operator_id, *(each.id for each in self.upstream(operator_id))}
        windows = {each.id for each in self.window_aggregates()}
        while True:
            more = set(found)
            for members in feeds.values():
                if members & found & windows:
                    more |= members
            if more == found:
                return found
            found = more
