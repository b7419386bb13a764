"""A query whose result changes as rows come: what it keeps, and which changes an epoch brings.

State is one KeyTable `rows`: the rows of all inputs by key, or what they were added up to. An epoch appends its rows, one Spark job
with one shuffle. Then the query is answered twice over the rows of the keys that were touched, as
they were before and as they are now, and the changes are the difference of the two answers. That is
right for every query which is right for any set of keys by itself: aggregates, joins, the newest
row by key. All of it happens inside the subtasks, without a shuffle.

The answer to the rows before must be, to the last bit, what was given in the epoch before. So the
query gets its rows in an order that depends on the rows alone: sums of floating-point numbers come
to the same whatever files and subtasks the rows lie in.

With a time to live, a key that no epoch has touched for longer is forgotten by the table. What was
given for it stays given.

Where rows can only meet rows of about their own event time, the table holds event time in the place
of the epoch's, rows behind the watermark are late and left out, and rows so old that only late ones
could meet them are forgotten.
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

from resurgence.engine.operators.aggregates.partial_aggregates import (
    PartialAggregates,
    partial_aggregates,
)
from resurgence.engine.operators.aggregates.planner import settled_sql
from resurgence.engine.tables.exact_rows import ExactRows, quoted
from resurgence.engine.tables.key_table import KEY, NEW, TIME, KeyTable
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.observed import observed
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.graph.values import CHANGE, EVENT_TIME
from resurgence.state.records import StateFile

ROWS_TABLE = "rows"
"""The name of the operator's table."""

INPUT = "__input"
"""The column with the number of the input that a row came from."""

_BEFORE, _AFTER = "__before", "__after"
_TIMES, _IS_THERE = "__times", "__is_there"
_LATE, _IS_MARKER = "__late", "__is_marker"


class UpdatingQuery:
    """The operator compiled against the types of its inputs. Spark's refusals are raised as they
    are.
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
        """`inputs` have the columns of the operator's inputs, and no rows."""
        self._sums = partial_aggregates(operator, inputs[0])
        if self._sums is not None:
            operator = self._sums.operator
        elif operator.aggregates:
            operator = _settled(operator, inputs[0])
        self._operator = operator
        self._spark: SparkSession = inputs[0].sparkSession
        self._kept: list[DataFrame] = []
        self._late: list[Observation] = []
        kept = [self._sums.made(inputs[0])] if self._sums is not None else inputs
        stored = [_stored(number, rows, operator) for number, rows in enumerate(kept)]
        self._columns = tuple(
            StructField(each.name, each.dataType) for rows in stored for each in rows.schema
        )
        self._names = [rows.columns for rows in stored]
        self._key_types = _key_types(operator, stored)
        self._exact = ExactRows([StructField(INPUT, IntegerType()), *self._columns])
        self._exact_inputs = [
            ExactRows([each for each in self._columns if each.name in names])
            for names in self._names
        ]
        self.table = KeyTable(
            url=url,
            folder=folder,
            columns=(StructField(INPUT, IntegerType()), *self._columns),
            parallelism=parallelism,
            ttl_micros=operator.ttl_micros,
        )
        nothing = self._spark.createDataFrame([], self.table.schema).selectExpr(
            "*", f"false AS {NEW}"
        )
        self._delta_columns = [self._to_table(number) for number in range(len(inputs))]
        for number, rows in enumerate(inputs):
            self._part(number, rows, 0, None)
        answer = self._answer(self._consolidated(nothing), _AFTER)
        self._exact_answer = ExactRows(answer.schema)
        self.shape = self._difference([(answer, 1)])
        """The changes that it gives, without rows: the columns of the query and `CHANGE`."""

    # ---------------------------------------------------------------- append

    def delta(
        self, inputs: Sequence[DataFrame | None], time: int, watermark: int | None = None
    ) -> DataFrame | None:
        """An epoch's rows as the table keeps them, to be written to it. None: there are none."""
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
        """How many rows of the last delta were late, once it is written."""
        return sum(observed(each).get("late", 0) for each in self._late)

    def _part(self, number: int, rows: DataFrame, time: int, watermark: int | None) -> DataFrame:
        has_changes = self._operator.inputs[number].is_updating
        hidden = {CHANGE: f"`{CHANGE}`" if has_changes else "1L", TIME: f"{time}L"}
        if self._operator.keep_micros is not None:
            # A row without event time meets none, and may be forgotten at once.
            hidden[TIME] = f"coalesce(unix_micros(`{EVENT_TIME}`), 0L)"
            if watermark is not None:
                late = f"coalesce(unix_micros(`{EVENT_TIME}`) < {watermark}L, false)"
                self._late.append(Observation())
                rows = rows.selectExpr("*", f"{late} AS {_LATE}").observe(
                    self._late[-1], F.expr(f"count_if({_LATE}) AS late")
                )
                rows = rows.where(f"NOT {_LATE}")
        kept = self._sums.made(rows) if self._sums is not None else rows
        stored = _stored(number, kept, self._operator, hidden)
        return stored.select(*self._delta_columns[number], F.col(TIME).cast("bigint"))

    def _to_table(self, number: int) -> list[Column]:
        """What makes rows of an input rows of the table, up to their time."""
        given = self._operator.inputs[number]
        positions = [each.name for each in given.columns]
        keys = [
            F.col(self._names[number][positions.index(name)]).cast(kind)
            for name, kind in zip(given.keys, self._key_types, strict=True)
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

    # ---------------------------------------------------------------- changes

    def changes(self, live: LiveFiles, files: tuple[StateFile, ...], time: int) -> DataFrame | None:
        """The changes of the result that new files bring to those that are live. They can be
        asked for until `release`. None: nothing was written, nothing changes.
        """
        since, touched_at = self.table.since(time), live.touched_at
        has_answered = touched_at is not None and (since is None or touched_at >= since)
        subtasks = self.table.read_touched(self._spark, live, files)
        changes = []
        for rows in subtasks:
            # Spark leaves out a sort that it thinks needless, but not from what is kept.
            kept = self._consolidated(rows).persist()
            self._kept.append(kept)
            answers = [(self._answer(kept, _AFTER), 1)]
            if has_answered:
                answers.append((self._answer(kept, _BEFORE), -1))
            changes.append(self._difference(answers))
        return functools.reduce(DataFrame.unionAll, changes) if changes else None

    def unexpired(self, live: LiveFiles, watermark: int | None) -> LiveFiles:
        """The files without those in which all rows are so old that only late ones could meet them."""
        dead_before = self._dead_before(watermark)
        return live if dead_before is None else live.from_time(dead_before)

    def _dead_before(self, watermark: int | None) -> int | None:
        keep = self._operator.keep_micros
        return None if keep is None or watermark is None else watermark - keep

    def release(self) -> None:
        """Let go of the rows that the last changes were made from."""
        for rows in self._kept:
            rows.unpersist()
        self._kept = []

    def _consolidated(self, rows: DataFrame) -> DataFrame:
        """Rows in their exact form and in order, with how often each is there before and after."""
        weighted = rows.selectExpr(
            *self._exact.forms, f"IF({NEW}, 0L, {CHANGE}) AS {_BEFORE}", f"{CHANGE} AS {_AFTER}"
        )
        if any(each.is_updating for each in self._operator.inputs):
            weighted = weighted.groupBy(*self._exact.names).agg(
                F.sum(_BEFORE).alias(_BEFORE), F.sum(_AFTER).alias(_AFTER)
            )
        return weighted.sortWithinPartitions(*self._exact.names)

    def _answer(self, rows: DataFrame, side: str) -> DataFrame:
        """The query over the rows as they are on one side of the epoch."""
        inputs = [self._input(number, rows, side) for number in range(len(self._names))]
        with _views(self._spark, inputs) as names:
            sql = self._operator.sql
            for number, name in enumerate(names):
                sql = sql.replace(f"{{input_{number}}}", name)
            return self._spark.sql(sql)

    def _input(self, number: int, rows: DataFrame, side: str) -> DataFrame:
        exact = self._exact_inputs[number]
        found = (
            rows.where(f"{INPUT} = {number} AND {side} > 0")
            .selectExpr(*exact.names, f"explode(array_repeat(0, CAST({side} AS INT))) AS {_TIMES}")
            .selectExpr(*exact.restored)
            .toDF(*(each.name for each in self._operator.inputs[number].columns))
        )
        # Spark takes what a task gives for small, and would send it to the driver.
        return found.hint("merge") if len(self._names) > 1 else found

    def _difference(self, answers: Sequence[tuple[DataFrame, int]]) -> DataFrame:
        """What has come and what has gone, by answers that count and answers that count against."""
        exact = self._exact_answer
        weighted = [rows.selectExpr(*exact.forms, f"{sign} AS {CHANGE}") for rows, sign in answers]
        # In one partition, Spark needs no shuffle to group them.
        together = functools.reduce(DataFrame.unionAll, weighted).coalesce(1)
        return exact.net(together)

    # ---------------------------------------------------------------- compaction

    def merged(
        self, live: LiveFiles, replaced: frozenset[str], time: int, watermark: int | None = None
    ) -> DataFrame:
        """The rows of some files as few rows as can be, to be written in their place."""
        since, dead_before = self.table.since(time), self._dead_before(watermark)
        parts: Sequence[DataFrame] = self.table.read(self._spark, live, replaced, time)
        if dead_before is not None:
            parts = [each.where(f"{TIME} >= {dead_before}L") for each in parts]
        return functools.reduce(DataFrame.unionAll, (self._merged(each, since) for each in parts))

    def _merged(self, rows: DataFrame, since: int | None) -> DataFrame:
        if self._sums is not None:
            return self._merged_sums(rows, self._sums)
        merged = (
            rows.selectExpr(KEY, *self._exact.forms, CHANGE, TIME)
            .groupBy(KEY, *self._exact.names)
            .agg(F.sum(CHANGE).alias(CHANGE), F.max(TIME).alias(TIME))
        )
        if since is None:
            merged = merged.where(f"{CHANGE} <> 0")
        else:
            # All rows of a key say when it was touched; one that is not there any more does so
            # only where no other can.
            by_key = f"OVER (PARTITION BY {KEY})"
            merged = merged.selectExpr(
                KEY,
                *self._exact.names,
                CHANGE,
                f"IF({CHANGE} IS NULL, {TIME}, max({TIME}) {by_key}) AS {TIME}",
                f"coalesce(max({CHANGE} <> 0) {by_key}, false) AS {_IS_THERE}",
            ).where(
                f"{CHANGE} IS NULL OR {CHANGE} <> 0 OR (NOT {_IS_THERE} AND {TIME} >= {since}L)"
            )
        return merged.sortWithinPartitions(KEY).selectExpr(KEY, *self._exact.restored, CHANGE, TIME)

    def _merged_sums(self, rows: DataFrame, sums: PartialAggregates) -> DataFrame:
        named = [
            (column, quoted(each.name))
            for column, each in zip(self._names[0], self._operator.inputs[0].columns, strict=True)
        ]
        return (
            rows.selectExpr(
                KEY,
                INPUT,
                f"{CHANGE} IS NULL AS {_IS_MARKER}",
                *(f"{column} AS {name}" for column, name in named),
                TIME,
            )
            .groupBy(KEY, INPUT, _IS_MARKER, *sums.keys)
            .agg(*(F.expr(each) for each in sums.merges), F.max(TIME).alias(TIME))
            .sortWithinPartitions(KEY)
            .selectExpr(
                KEY,
                INPUT,
                *(f"{name} AS {column}" for column, name in named),
                f"IF({_IS_MARKER}, NULL, 1L) AS {CHANGE}",
                TIME,
            )
        )


def _settled(operator: UpdatingQuerySpec, rows: DataFrame) -> UpdatingQuerySpec:
    """The same aggregates, with answers that do not depend on the order in which Spark takes rows:
    with DISTINCT or many groups it is another than theirs.
    """
    given = operator.inputs[0]
    named = rows.selectExpr(*(f"{each.sql} AS {quoted(each.name)}" for each in given.columns))
    keys = [quoted(each) for each in given.keys]
    results = [
        f"{settled_sql(each, named)} AS {quoted(each.name)}" for each in operator.aggregates or ()
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
    """What is kept of an input's rows, under the names of the table."""
    columns = [
        f"{each.sql} AS c{number}_{position}"
        for position, each in enumerate(operator.inputs[number].columns)
    ]
    return rows.selectExpr(*columns, *(f"{sql} AS {name}" for name, sql in hidden.items()))


def _key_types(operator: UpdatingQuerySpec, stored: Sequence[DataFrame]) -> tuple[DataType, ...]:
    """The types in which the keys of the inputs are compared: the widest of each."""
    keys = []
    for given, rows in zip(operator.inputs, stored, strict=True):
        shown = [each.name for each in given.columns]
        keys.append(rows.select(*(rows.columns[shown.index(each)] for each in given.keys)))
    if not operator.inputs[0].keys:
        return ()
    return tuple(each.dataType for each in functools.reduce(DataFrame.unionAll, keys).schema)


@contextmanager
def _views(spark: SparkSession, frames: Sequence[DataFrame]) -> Iterator[list[str]]:
    """DataFrames under names of their own, as long as a query is made of them."""
    names = [f"input_{uuid.uuid4().hex}" for _ in frames]
    try:
        for name, frame in zip(names, frames, strict=True):
            frame.createOrReplaceTempView(name)
        yield [quoted(each) for each in names]
    finally:
        for name in names:
            spark.catalog.dropTempView(name)
