"""An updating query: its state, and the changes of its result in an epoch.

State is one KeyTable `rows`: the rows of all inputs by key. An epoch appends its rows, in one Spark
job with one shuffle. Then the query is evaluated twice over the rows
of the touched keys, without and with the epoch's rows, and the changes are the difference of the
two results. That is correct for every query that is correct for any set of keys by itself:
aggregates, joins, the newest row by key. All of it happens inside the subtasks, without a shuffle.
An inner join of append-only streams is computed once (`NewPairs`).

The result over the previous rows must equal, to the last bit, what the previous epoch emitted. So
the query reads its rows in an order that depends on the rows alone: sums of floating-point numbers
are the same whatever files and subtasks the rows are in.

With a state TTL, the table expires a key that no epoch has touched for that long. Its emitted
result is not retracted.

Where a row can only match rows of about the same event time, the table stores event time instead of
the epoch's time, rows behind the watermark are late and dropped, and rows expire when only late
rows could still match them.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField

from resurgence.connectors.exact_rows import ExactRows, quoted
from resurgence.engine.operators.aggregates.planner import deterministic_sql
from resurgence.engine.operators.changelogs.new_pairs import NewPairs
from resurgence.engine.spark.empty_rows import empty_rows
from resurgence.engine.tables.key_table import NEW, KeyTable, Side
from resurgence.engine.tables.keyed_table import TIME
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.observed import observed
from resurgence.engine.tables.sorted_rows import KEY
from resurgence.engine.tables.state_writer import Written
from resurgence.faults import FaultAction
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.graph.values import CHANGE, EVENT_TIME
from resurgence.ids import Epoch, Generation
from resurgence.spark_plans.projection import Projection
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import StateFile

ROWS_TABLE = "rows"
"""The name of the operator's table."""

INPUT = "__input"
"""The column with the number of the input that a row came from."""

_BEFORE, _AFTER = "__before", "__after"
_TIMES, _HAS_ROWS = "__times", "__has_rows"
_LATE = "__late"


class UpdatingQuery:
    """The operator compiled against the types of its inputs. Raises Spark's analysis errors
    untranslated.
    """

    def __init__(
        self,
        operator: UpdatingQuerySpec,
        inputs: Sequence[DataFrame],
        *,
        url: str,
        folder: str,
        parallelism: int,
    ) -> None:
        """`inputs` are empty and have the columns of the operator's inputs."""
        if operator.aggregates:
            operator = _deterministic(operator, inputs[0])
        self._operator = operator
        self._spark: SparkSession = inputs[0].sparkSession
        self._cached: list[DataFrame] = []
        self._late: list[Observation] = []
        stored = [_stored(number, rows, operator) for number, rows in enumerate(inputs)]
        self._columns = tuple(
            StructField(each.name, each.dataType) for rows in stored for each in rows.schema
        )
        self._names = [rows.columns for rows in stored]
        self._key_types = _key_types(operator, stored)
        self._exact = ExactRows([StructField(INPUT, IntegerType()), *self._columns])
        self._weighted = Projection(
            *self._exact.forms, f"IF({NEW}, 0L, {CHANGE}) AS {_BEFORE}", f"{CHANGE} AS {_AFTER}"
        )
        self._sides = {
            (number, side): self._side(number, side)
            for number in range(len(inputs))
            for side in (_BEFORE, _AFTER)
        }
        self.table = KeyTable(
            url=url,
            folder=folder,
            columns=(StructField(INPUT, IntegerType()), *self._columns),
            parallelism=parallelism,
            ttl_micros=operator.ttl_micros,
        )
        nothing = empty_rows(self._spark, self.table.schema).selectExpr("*", f"false AS {NEW}")
        self._delta_columns = [self._to_table(number) for number in range(len(inputs))]
        for number, rows in enumerate(inputs):
            self._part(number, rows, 0, None)
        self._pairs = self._compiled_pairs()
        if self._pairs is None:
            result = self._result(self._consolidated(nothing), _AFTER)
            self._exact_result = ExactRows(result.schema)
            self._signed = {
                sign: Projection(*self._exact_result.forms, f"{sign} AS {CHANGE}")
                for sign in (1, -1)
            }
            shape = self._difference([(result, 1)])
        else:
            shape = self._pairs.of(nothing, nothing)
        self.shape = shape
        """The columns of its changes, without rows: those of the query and `CHANGE`."""

    def _compiled_pairs(self) -> NewPairs | None:
        if self._operator.inner_join is None:
            return None
        sides = [
            [*zip(stored, (each.name for each in source.columns), strict=True)]
            for stored, source in zip(self._names, self._operator.inputs, strict=True)
        ]
        return NewPairs(self._operator.inner_join, sides)

    # ---------------------------------------------------------------- append

    def delta(
        self, inputs: Sequence[DataFrame | None], time: int, watermark: int | None = None
    ) -> DataFrame | None:
        """Return an epoch's rows in the columns of the table; None if there are none."""
        self._late = []
        parts = [
            self._part(number, rows, time, watermark)
            for number, rows in enumerate(inputs)
            if rows is not None
        ]
        if not parts:
            return None
        return self.table.dealt(functools.reduce(DataFrame.unionAll, parts))

    def late_rows(self) -> int:
        """Return how many rows of the last delta were late, once it is written."""
        return sum(observed(each).get("late", 0) for each in self._late)

    def measured(self, rows: int, groups: int) -> None:
        """Nothing is estimated."""

    def _part(self, number: int, rows: DataFrame, time: int, watermark: int | None) -> DataFrame:
        has_changes = self._operator.inputs[number].is_updating
        hidden = {
            CHANGE: f"`{CHANGE}`" if has_changes else "1L",
            TIME: varying_literal(f"{time}L"),
        }
        if self._operator.keep_micros is not None:
            # A row without event time matches none, and may expire at once.
            hidden[TIME] = f"coalesce(unix_micros(`{EVENT_TIME}`), 0L)"
            if watermark is not None:
                bound = varying_literal(f"{watermark}L")
                late = f"coalesce(unix_micros(`{EVENT_TIME}`) < {bound}, false)"
                self._late.append(Observation())
                rows = rows.selectExpr("*", f"{late} AS {_LATE}").observe(
                    self._late[-1], F.expr(f"count_if({_LATE}) AS late")
                )
                rows = rows.where(f"NOT {_LATE}")
        stored = _stored(number, rows, self._operator, hidden)
        return stored.select(*self._delta_columns[number], F.col(TIME).cast("bigint"))

    def _to_table(self, number: int) -> list[Column]:
        """Return the columns that convert rows of an input to rows of the table, except `TIME`."""
        source = self._operator.inputs[number]
        positions = [each.name for each in source.columns]
        keys = [
            F.col(self._names[number][positions.index(name)]).cast(kind)
            for name, kind in zip(source.keys, self._key_types, strict=True)
        ]
        key = F.shiftrightunsigned(F.xxhash64(*keys), 2) if keys else F.lit(0)
        own = set(self._names[number])
        return [
            key.cast("bigint").alias(KEY),
            F.lit(number).alias(INPUT),
            *(
                (F.col(each.name) if each.name in own else F.lit(None).cast(each.dataType)).alias(
                    each.name
                )
                for each in self._columns
            ),
            F.col(CHANGE).cast("bigint").alias(CHANGE),
        ]

    def write(
        self,
        delta: DataFrame,
        live: LiveFiles,
        epoch: Epoch,
        generation: Generation,
        time: int,
        *,
        watermark: int | None = None,
        fault: FaultAction | None = None,
    ) -> Written:
        """Append an epoch's rows."""
        return self.table.write(delta, epoch, generation, after=(live, time), fault=fault)

    # ---------------------------------------------------------------- changes

    def changes(
        self,
        live: LiveFiles,
        files: tuple[StateFile, ...],
        time: int,
        watermark: int | None = None,
    ) -> DataFrame | None:
        """Return the changes of the result by new files, on top of the live ones; None if nothing
        was written. They are valid until `release`.
        """
        if self._pairs is not None:
            return self._new_pairs(self._pairs, live, files)
        since, touched_at = self.table.since(time), live.touched_at
        has_result = touched_at is not None and (since is None or touched_at >= since)
        subtasks = self.table.read_touched(self._spark, live, files)
        changes = []
        for rows in subtasks:
            # Spark removes a sort that it considers redundant, but not from cached rows.
            cached = self._consolidated(rows).persist()
            self._cached.append(cached)
            results = [(self._result(cached, _AFTER), 1)]
            if has_result:
                results.append((self._result(cached, _BEFORE), -1))
            changes.append(self._difference(results))
        return functools.reduce(DataFrame.unionAll, changes) if changes else None

    def _new_pairs(
        self, pairs: NewPairs, live: LiveFiles, files: tuple[StateFile, ...]
    ) -> DataFrame | None:
        near = self._operator.keep_micros
        sides = [
            self.table.read_matching(self._spark, live, files, Side(INPUT, number), near)
            for number in range(len(self._names))
        ]
        joined = [pairs.of(*rows) for rows in zip(*sides, strict=True)]
        return functools.reduce(DataFrame.unionAll, joined) if joined else None

    def unexpired(self, live: LiveFiles, watermark: int | None) -> LiveFiles:
        """Return the files without those in which all rows have expired by the watermark."""
        expires_before = self._expires_before(watermark)
        return live if expires_before is None else live.from_time(expires_before)

    def _expires_before(self, watermark: int | None) -> int | None:
        """Return the event time before which only late rows could match."""
        retention = self._operator.keep_micros
        return None if retention is None or watermark is None else watermark - retention

    def release(self) -> None:
        """Drop the cached rows of the last changes."""
        for rows in self._cached:
            rows.unpersist()
        self._cached = []

    def _consolidated(self, rows: DataFrame) -> DataFrame:
        """Return rows in their exact form and in order, with their counts before and after the
        epoch.
        """
        weighted = self._weighted.of(rows)
        if any(each.is_updating for each in self._operator.inputs):
            weighted = weighted.groupBy(*self._exact.names).agg(
                F.sum(_BEFORE).alias(_BEFORE), F.sum(_AFTER).alias(_AFTER)
            )
        return weighted.sortWithinPartitions(*self._exact.names)

    def _result(self, rows: DataFrame, side: str) -> DataFrame:
        """Return the result of the query over the rows before or after the epoch."""
        inputs = [self._input(number, rows, side) for number in range(len(self._names))]
        with _views(self._spark, inputs) as names:
            sql = self._operator.sql
            for number, name in enumerate(names):
                sql = sql.replace(f"{{input_{number}}}", name)
            return self._spark.sql(sql)

    def _input(self, number: int, rows: DataFrame, side: str) -> DataFrame:
        condition, steps = self._sides[number, side]
        found = rows.where(condition)
        for each in steps:
            found = each.of(found)
        # Spark assumes that the output of a task is small, and would send it to the driver.
        return found.hint("merge") if len(self._names) > 1 else found

    def _side(self, number: int, side: str) -> tuple[Column, tuple[Projection, ...]]:
        """Return the filter and the steps that restore the rows of an input before or after."""
        stored, columns = self._names[number], self._operator.inputs[number].columns
        exact = ExactRows([each for each in self._columns if each.name in stored])
        times = f"explode(array_repeat(0, CAST({side} AS INT))) AS {_TIMES}"
        named = (
            f"{name} AS {quoted(each.name)}" for name, each in zip(stored, columns, strict=True)
        )
        steps = Projection(*exact.names, times), Projection(*exact.restored), Projection(*named)
        return F.expr(f"{INPUT} = {number} AND {side} > 0"), steps

    def _difference(self, results: Sequence[tuple[DataFrame, int]]) -> DataFrame:
        """Return the net insertions and retractions of results, each with its sign."""
        exact = self._exact_result
        weighted = [self._signed[sign].of(rows) for rows, sign in results]
        # In one partition, so that Spark groups them without a shuffle.
        together = functools.reduce(DataFrame.unionAll, weighted).coalesce(1)
        return exact.net(together)

    # ---------------------------------------------------------------- compaction

    def merged(
        self, live: LiveFiles, replaced: frozenset[str], time: int, watermark: int | None = None
    ) -> DataFrame:
        """Return the merged rows of some files, to be written as their replacement."""
        since, expires_before = self.table.since(time), self._expires_before(watermark)
        parts: Sequence[DataFrame] = self.table.read(self._spark, live, replaced, time)
        if expires_before is not None:
            parts = [each.where(f"{TIME} >= {expires_before}L") for each in parts]
        return functools.reduce(DataFrame.unionAll, (self._merged(each, since) for each in parts))

    def _merged(self, rows: DataFrame, since: int | None) -> DataFrame:
        merged = (
            rows.selectExpr(KEY, *self._exact.forms, CHANGE, TIME)
            .groupBy(KEY, *self._exact.names)
            .agg(F.sum(CHANGE).alias(CHANGE), F.max(TIME).alias(TIME))
        )
        if since is None:
            merged = merged.where(f"{CHANGE} <> 0")
        else:
            # All rows of a key carry the time of its last touch. A row with weight zero is retained
            # for that only if the key has no other row.
            by_key = f"OVER (PARTITION BY {KEY})"
            merged = merged.selectExpr(
                KEY,
                *self._exact.names,
                CHANGE,
                f"IF({CHANGE} IS NULL, {TIME}, max({TIME}) {by_key}) AS {TIME}",
                f"coalesce(max({CHANGE} <> 0) {by_key}, false) AS {_HAS_ROWS}",
            ).where(
                f"{CHANGE} IS NULL OR {CHANGE} <> 0 OR (NOT {_HAS_ROWS} AND {TIME} >= {since}L)"
            )
        return merged.selectExpr(KEY, *self._exact.restored, CHANGE, TIME)


def _deterministic(operator: UpdatingQuerySpec, rows: DataFrame) -> UpdatingQuerySpec:
    """Return the operator with aggregates whose results do not depend on the order in which Spark
    processes rows: with DISTINCT or many groups it differs from the order of its input.
    """
    source = operator.inputs[0]
    named = rows.selectExpr(*(f"{each.sql} AS {quoted(each.name)}" for each in source.columns))
    keys = [quoted(each) for each in source.keys]
    results = [
        f"{deterministic_sql(each, named)} AS {quoted(each.name)}"
        for each in operator.aggregates or ()
    ]
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    sql = f"SELECT {', '.join([*keys, *results])} FROM {{input_0}}{group}"
    return operator.model_copy(update={"sql": sql})


def _stored(
    number: int,
    rows: DataFrame,
    operator: UpdatingQuerySpec,
    hidden: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    """Return the stored columns of an input's rows, under the names of the table."""
    columns = [
        f"{each.sql} AS c{number}_{position}"
        for position, each in enumerate(operator.inputs[number].columns)
    ]
    return rows.selectExpr(*columns, *(f"{sql} AS {name}" for name, sql in hidden.items()))


def _key_types(operator: UpdatingQuerySpec, stored: Sequence[DataFrame]) -> tuple[DataType, ...]:
    """Return the types in which the keys of the inputs are compared: the widest of each."""
    keys = []
    for source, rows in zip(operator.inputs, stored, strict=True):
        names = [each.name for each in source.columns]
        keys.append(rows.select(*(rows.columns[names.index(each)] for each in source.keys)))
    if not operator.inputs[0].keys:
        return ()
    return tuple(each.dataType for each in functools.reduce(DataFrame.unionAll, keys).schema)


@contextmanager
def _views(spark: SparkSession, frames: Sequence[DataFrame]) -> Iterator[list[str]]:
    """Register DataFrames as temporary views while a query over them is built; yield the names."""
    names = [f"input_{uuid.uuid4().hex}" for _ in frames]
    try:
        for name, frame in zip(names, frames, strict=True):
            frame.createOrReplaceTempView(name)
        yield [quoted(each) for each in names]
    finally:
        for name in names:
            spark.catalog.dropTempView(name)
