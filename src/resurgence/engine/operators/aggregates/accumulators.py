"""Accumulators of an updating aggregation: what a group stores instead of its rows, in constant
space.

An epoch's rows are aggregated into partials, and each partial is added to the accumulator that the
group has. So the state of a group is the sum over epochs, in their order, and depends on nothing
else: not on files, subtasks or merges. Floating-point numbers are added in the order of their
values within an epoch, because the order in which Spark reads rows depends on the parallelism. A
replay therefore computes the same bits.

Over a changelog, what insertions add, retractions subtract, where that is exact (`net_aggregates`).

Aggregates without such a state are computed from stored rows (`updating_query`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from resurgence.connectors.exact_rows import ExactRows, quoted
from resurgence.engine.operators.aggregates.aggregate_plan import AggregatePlan, Partial
from resurgence.engine.operators.aggregates.first_and_last import first_or_last
from resurgence.engine.operators.aggregates.net_aggregates import net_aggregate, rows_of_group
from resurgence.engine.operators.aggregates.planner import plan_aggregate
from resurgence.engine.tables.group_table import HAD_ROW, previous
from resurgence.engine.tables.keyed_table import GROUP_OF_KEY, TIME
from resurgence.engine.tables.newest_rows import EPOCH
from resurgence.engine.tables.sorted_rows import KEY
from resurgence.engine.tables.state_writer import GROUP
from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.graph.values import CHANGE, EVENT_TIME
from resurgence.spark_plans.projection import Projection
from resurgence.sql.functions.aggregates import Partials, aggregate_function

AFTER, BEFORE = "__after", "__before"
"""The columns with the result of a group after the epoch, and before: null if it had none."""

LIVE_ROWS = "__live_rows"
"""The value of a group over a changelog that counts its rows."""

_ROWS = "__rows"
_IN_ORDER = "__in_order"


@dataclass(frozen=True)
class Accumulators:
    """An updating aggregation with accumulators, compiled against the types of its input."""

    columns: tuple[str, ...]
    """What is selected from the input rows."""
    arguments: tuple[str, ...]
    """What the partials read, over `columns`."""
    keys: tuple[StructField, ...]
    partials: tuple[Partial, ...]
    values: tuple[StructField, ...]
    """The partials as columns of state."""
    finished: tuple[str, ...]
    """The results over the partials."""
    order: tuple[str, ...]
    """What rows are sorted by before they are added; empty if any order has the same result."""
    follows_event_time: bool
    """Whether state expires by the event time of rows."""
    is_updating: bool
    """Whether the input is a changelog, in which groups can lose all their rows."""

    def partials_of(
        self, rows: DataFrame, shuffled: Callable[[DataFrame], DataFrame], *, spread: bool
    ) -> DataFrame:
        """Return the partials of an epoch's rows by group, with `GROUP`, in `shuffled` partitions.
        With `spread`, rows are shuffled before they are aggregated.
        """
        read = rows
        for each in self._reading:
            read = each.of(read)
        if spread or self.order:
            read = shuffled(read)
        if self.order:
            # Over rows in the order of its groups Spark aggregates row by row, without a hash map
            # that could be spilled and merged.
            read = read.sortWithinPartitions(*self._order)
        made = read.groupBy(*self._group).agg(*self._make)
        if not self.keys:
            # Without keys Spark returns one row for an empty input.
            made = made.where(f"{_ROWS} > 0")
        if self.order:
            # Spark drops a sort if all aggregates ignore the order, as it assumes of min and max. It
            # decides which of several equal values they return, such as 0.0 and -0.0.
            made = made.where(_IN_ORDER)
        made = self._made.of(made)
        return made if spread or self.order else shuffled(made)

    @cached_property
    def _groups(self) -> list[str]:
        return [quoted(each.name) for each in self.keys]

    @cached_property
    def _reading(self) -> tuple[Projection, ...]:
        """The steps from input rows to keys and arguments."""
        time, at = [], []
        if self.follows_event_time:
            time.append(f"`{EVENT_TIME}`")
            at.append(f"unix_micros(`{EVENT_TIME}`) AS {TIME}")
        if self.is_updating:
            time.append(CHANGE)
            at.append(CHANGE)
        return (
            Projection(*self.columns, *time),
            Projection(*self._groups, *self.arguments, *at),
            Projection(f"{self._hash()} AS {KEY}", "*"),
        )

    @cached_property
    def _order(self) -> list[Column]:
        return [F.expr(each) for each in (KEY, *self._groups, *self.order)]

    @cached_property
    def _group(self) -> list[Column]:
        return [F.col(each) for each in (KEY, *self._groups)]

    @cached_property
    def _make(self) -> list[Column]:
        made = [F.expr(f"{each.make} AS {each.name}") for each in self.partials]
        if self.follows_event_time:
            made.append(F.expr(f"coalesce(max({TIME}), 0L) AS {TIME}"))
        if self.order:
            made.append(F.first(F.lit(True)).alias(_IN_ORDER))
        return [*made, F.count(F.lit(1)).alias(_ROWS)]

    @cached_property
    def _made(self) -> Projection:
        return Projection(
            f"{GROUP_OF_KEY} AS {GROUP}",
            KEY,
            *self._groups,
            *(each.name for each in self.partials),
            *([TIME] if self.follows_event_time else []),
        )

    def added(self, rows: DataFrame) -> DataFrame:
        """Return partials with previous accumulators as the new accumulators, with the previous
        ones.
        """
        return self._adding.of(rows)

    @cached_property
    def _adding(self) -> Projection:
        return Projection(
            GROUP,
            KEY,
            *self._groups,
            EPOCH,
            TIME,
            HAD_ROW,
            *(
                f"IF({HAD_ROW}, {self._sum(partial)}, {partial.name}) AS {partial.name}"
                for partial in self.partials
            ),
            *(previous(each.name) for each in self.values),
        )

    def results(self, rows: DataFrame) -> DataFrame:
        """Return accumulators with previous ones as the results `AFTER` and `BEFORE`."""
        for each in self._finishing:
            rows = each.of(rows)
        return rows

    @cached_property
    def _finishing(self) -> tuple[Projection, ...]:
        result = f"struct({', '.join([*self._groups, *self.finished])})"
        # Without keys there is a row even if all input rows were retracted.
        exists = f"{LIVE_ROWS} > 0" if self.is_updating and self.keys else "true"
        before = [f"{previous(each.name)} AS {each.name}" for each in self.values]
        return (
            Projection(*self._groups, f"IF({exists}, {result}, NULL) AS {AFTER}", HAD_ROW, *before),
            Projection(AFTER, f"IF({HAD_ROW} AND {exists}, {result}, NULL) AS {BEFORE}"),
        )

    def with_rows(self, rows: DataFrame) -> DataFrame:
        """Return accumulators without those that are zero. A group that has lost all its rows
        keeps another value if a retraction had no row, because it cancels a later insertion.
        """
        if not (self.is_updating and self.keys):
            return rows
        is_zero = " AND ".join(f"{each.name} <=> 0" for each in self.values)
        return rows.where(f"NOT ({is_zero})")

    def _sum(self, partial: Partial) -> str:
        assert partial.plus is not None
        return partial.plus.format(a=previous(partial.name), b=partial.name)

    def _hash(self) -> str:
        if not self.keys:
            return "0L"
        return f"shiftrightunsigned(xxhash64({', '.join(self._groups)}), 2)"


def accumulators(operator: UpdatingQuerySpec, rows: DataFrame) -> Accumulators | None:
    """Return the accumulators of an aggregation; None if its rows must be stored."""
    source = operator.inputs[0]
    if operator.aggregates is None:
        return None
    columns = tuple(f"{each.sql} AS {quoted(each.name)}" for each in source.columns)
    named = rows.selectExpr(*columns)
    keys = tuple(named.schema[each] for each in source.keys)
    planned = net_aggregate if source.is_updating else _mergeable
    plans = []
    for number, call in enumerate(operator.aggregates):
        plan = planned(call, f"__part_{number}", named)
        if plan is None:
            return None
        plans.append(plan)
    partials = tuple(each for plan in plans for each in plan.partials)
    hidden = []
    if source.is_updating:
        partials += (rows_of_group(LIVE_ROWS),)
        hidden = [f"1 AS {CHANGE}"]
    is_constant = all(each.plus is not None for each in partials)
    if not is_constant or not all(is_comparable(each.dataType) for each in keys):
        return None
    arguments = tuple(column for plan in plans for column in plan.inputs)
    groups = [quoted(each.name) for each in keys]
    read = named.selectExpr(*groups, *arguments, *hidden)
    made = read.groupBy(*groups).agg(F.count(F.lit(1)), *(F.expr(each.make) for each in partials))
    kinds = made.schema.fields[len(keys) + 1 :]
    values = tuple(
        StructField(each.name, kind.dataType) for each, kind in zip(partials, kinds, strict=True)
    )
    order: tuple[str, ...] = ()
    if any(_depends_on_order(each.dataType) for each in values):
        own = read.schema.fields[len(keys) :]
        is_sortable = all(_is_sortable(each.dataType) for each in own)
        if not is_sortable or any(_depends_on_order(each.dataType) for each in keys):
            return None
        order = tuple(form.rsplit(" AS ", 1)[0] for form in ExactRows(own).forms)
    return Accumulators(
        columns=columns,
        arguments=arguments,
        keys=keys,
        partials=partials,
        values=values,
        finished=tuple(
            f"{plan.finish} AS {quoted(call.name)}"
            for plan, call in zip(plans, operator.aggregates, strict=True)
        ),
        order=order,
        follows_event_time=operator.keep_micros is not None,
        is_updating=source.is_updating,
    )


def _mergeable(call: AggregateCall, name: str, rows: DataFrame) -> AggregatePlan | None:
    """Plan an aggregate call over an append-only stream; None if it has no partials."""
    partials = aggregate_function(call.function).partials
    if partials is Partials.BY_EVENT_TIME:
        # A window orders by the hidden event time; here the call names its order.
        return first_or_last(call, name, rows)
    return None if partials is None else plan_aggregate(call, name, rows)


def is_comparable(kind: DataType) -> bool:
    """Return whether keys of a type can be compared outside of Spark, where state is looked up."""
    if isinstance(kind, StringType):
        return kind == StringType()
    return isinstance(kind, AtomicType) and not isinstance(kind, VariantType)


def _is_sortable(kind: DataType) -> bool:
    return isinstance(kind, AtomicType) and not isinstance(kind, VariantType)


def _depends_on_order(kind: DataType) -> bool:
    """Return whether a result of the type can depend on the order of rows: sums of floating-point
    numbers do, and which of several equal values is the least, if equal ones can differ.
    """
    if isinstance(kind, ArrayType):
        return _depends_on_order(kind.elementType)
    if isinstance(kind, MapType):
        return _depends_on_order(kind.keyType) or _depends_on_order(kind.valueType)
    if isinstance(kind, StructType):
        return any(_depends_on_order(each.dataType) for each in kind)
    if isinstance(kind, StringType):
        return kind != StringType()
    return isinstance(kind, FloatType | DoubleType)
