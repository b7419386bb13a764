"""Reads a range of a source, adds the computed columns of its table, and observes watermark and bad
records.

The job that reads the rows observes them, not a second one. Observed values are computed as columns
first, because Spark compiles columns, and interprets observed expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from resurgence.connectors.contract import BAD_POSITION, RECORD_POSITION, Source
from resurgence.engine.functions.planning_time import reads_planning_time, with_planning_time
from resurgence.engine.spark.empty_rows import empty_rows
from resurgence.engine.spark.errors import translate
from resurgence.engine.tables.observed import observed
from resurgence.errors import BadRecord, SqlError
from resurgence.graph.specs.base import duration_text
from resurgence.graph.specs.source import SourceSpec, WatermarkSpec
from resurgence.graph.values import CHANGE, EVENT_TIME, OPERATION, PLANNED_AT, POSITION, Column
from resurgence.sql.catalog.table_columns import computed_sql
from resurgence.state.records import InputRange

_WATERMARK = "__watermark"
_AHEAD = "__ahead"
_GOOD = f"`{BAD_POSITION}` IS NULL"


@dataclass(frozen=True)
class Seen:
    """Observed values of a range."""

    watermark: int | None = None
    bad_rows: int = 0
    first_bad: int | None = None
    first_ahead: int | None = None
    """The first record that is bad because its event time is too far in the future."""


@dataclass(frozen=True)
class Reading:
    """A range being read. `seen` is available once a Spark job has read `rows`."""

    rows: DataFrame
    """Good rows only: the declared columns and event time, and possibly internal columns."""
    everything: DataFrame
    """Bad records as well, without observation."""
    observation: Observation | None
    measures: tuple[SparkColumn, ...] = ()

    def seen(self, *, was_read: bool) -> Seen:
        """Return the values that were observed by the job that read the range. If there was none,
        or Spark did not need to read it, run a job for this.
        """
        if self.observation is None:
            return Seen()
        found = observed(self.observation) if was_read else {}
        if not found:
            (row,) = self.everything.agg(*self.measures).collect()
            found = row.asDict()
        return Seen(
            found.get("watermark"),
            found.get("bad", 0),
            found.get("first_bad"),
            found.get("first_ahead"),
        )


class SourceReader:
    """One source of a running job."""

    def __init__(self, operator: SourceSpec, source: Source) -> None:
        self.source = source
        self._columns = operator.columns
        self._watermark = operator.watermark
        self._max_future = operator.max_future_micros
        self._reads_time = reads_planning_time(operator)

    def read(
        self, spark: SparkSession, input_range: InputRange, parallelism: int, time: int
    ) -> Reading:
        """Read a range; `time` is when the epoch was planned, in microseconds."""
        rows = self.source.read(spark, input_range, parallelism)
        may_be_bad = BAD_POSITION in rows.columns
        if self._reads_time:
            rows = with_planning_time(rows, time)
        rows = with_generated(rows, self._columns)
        measures = []
        if self._watermark is not None and self._max_future is not None:
            rows = _with_future_as_bad(rows, self._watermark, self._max_future, time)
            measures.append(F.expr(f"min(`{_AHEAD}`) AS first_ahead"))
        if self._watermark is not None:
            mark = _micros(self._watermark)
            mark = f"IF({_GOOD}, {mark}, NULL)" if may_be_bad else mark
            rows = rows.selectExpr("*", event_time(self._watermark), f"{mark} AS `{_WATERMARK}`")
            measures.append(F.expr(f"max(`{_WATERMARK}`) AS watermark"))
        if may_be_bad:
            measures.append(F.expr(f"count(`{BAD_POSITION}`) AS bad"))
            measures.append(F.expr(f"min(`{BAD_POSITION}`) AS first_bad"))
        if not measures:
            return Reading(rows, rows, None)
        observation = Observation()
        seen = rows.observe(observation, *measures)
        good = seen.where(_GOOD) if may_be_bad else seen
        return Reading(good, rows, observation, tuple(measures))

    def bad_record(self, input_range: InputRange, seen: Seen, time: int) -> BadRecord:
        """Return the error for the first bad record of a range."""
        assert seen.first_bad is not None
        error = self.source.bad_record(input_range, seen.first_bad)
        if seen.first_bad != seen.first_ahead or self._max_future is None:
            return error
        planned_at = datetime.fromtimestamp(time / 1_000_000, UTC).isoformat(timespec="seconds")
        return BadRecord(
            f"{error.position}: event time is more than {duration_text(self._max_future)} ahead of"
            f" the epoch's planning time, {planned_at}",
            hint="Check the producer's clock and timestamp_unit. Raise max_future to accept the"
            " record, or set bad_data = 'drop' to count and skip such records.",
            position=error.position,
        )


def _with_future_as_bad(
    rows: DataFrame, watermark: WatermarkSpec, max_future: int, time: int
) -> DataFrame:
    """Mark records as bad if their event time is too far ahead of the planning time."""
    ahead = f"unix_micros(`{watermark.event_time}`) - unix_micros(`{PLANNED_AT}`)"
    position = f"IF({_GOOD} AND {ahead} > {max_future}L, `{RECORD_POSITION}`, NULL)"
    marked = with_planning_time(rows, time).withColumn(_AHEAD, F.expr(position)).drop(PLANNED_AT)
    return marked.withColumn(BAD_POSITION, F.expr(f"coalesce(`{BAD_POSITION}`, `{_AHEAD}`)"))


def event_time(watermark: WatermarkSpec) -> str:
    """Return SQL for the hidden column with event time."""
    return f"`{watermark.event_time}` AS `{EVENT_TIME}`"


def read_shape(spark: SparkSession, operator: SourceSpec) -> DataFrame:
    """Return an empty DataFrame with the columns that a source's computed columns read."""
    columns = [f"`{each.name}` {each.type}" for each in operator.read_columns]
    if operator.is_updating:
        columns.append(f"`{CHANGE}` INT")
    if operator.keys:
        columns += [f"`{OPERATION}` STRING", f"`{POSITION}` BIGINT"]
    schema = StructType.fromDDL(", ".join(columns))
    assert isinstance(schema, StructType)
    rows = empty_rows(spark, schema)
    return with_planning_time(rows, 0) if reads_planning_time(operator) else rows


def source_shape(spark: SparkSession, operator: SourceSpec) -> DataFrame:
    """Return an empty DataFrame with a source's columns and event time. Raise SqlError, with its
    position, if Spark rejects a computed column, or event time is not a TIMESTAMP.
    """
    shape = with_generated(read_shape(spark, operator), operator.columns)
    if operator.watermark is None:
        return shape
    column = next(each for each in operator.columns if each.name == operator.watermark.event_time)
    kind = shape.schema[column.name].dataType
    if not isinstance(kind, TimestampType):
        place = column.generated.position if column.generated else None
        raise SqlError(
            f"event time must be a TIMESTAMP, but '{column.name}' is of type {kind.simpleString()}",
            line=place.line if place else 1,
            column=place.column if place else 1,
            hint="Compute a TIMESTAMP, as in to_timestamp_ltz(millis, 3).",
        )
    return shape.selectExpr("*", event_time(operator.watermark))


def with_generated(rows: DataFrame, columns: tuple[Column, ...]) -> DataFrame:
    """Return the rows with computed columns, in the order of the declaration. Raise SqlError, with
    its position, if Spark rejects an expression.
    """
    if all(each.generated is None for each in columns):
        return rows
    may_be_bad = BAD_POSITION in rows.columns
    values = [_value(each, may_be_bad) for each in columns]
    try:
        internal = (CHANGE, BAD_POSITION, RECORD_POSITION)
        hidden = [each for each in internal if each in rows.columns]
        return rows.selectExpr(*values, *(f"`{each}`" for each in hidden))
    except (AnalysisException, ParseException) as error:
        for each, value in zip(columns, values, strict=True):
            _check(rows, each, value)
        raise translate(error) from error


def _value(column: Column, may_be_bad: bool) -> str:
    """Return SQL for a column. A bad record has no values to compute with."""
    if column.generated is None:
        return f"`{column.name}`"
    value = computed_sql(column)
    value = f"IF({_GOOD}, {value}, NULL)" if may_be_bad else value
    return f"{value} AS `{column.name}`"


def _check(rows: DataFrame, column: Column, value: str) -> None:
    """Raise SqlError at the position of a column that Spark rejects."""
    try:
        rows.selectExpr(value)
    except (AnalysisException, ParseException) as error:
        failure = translate(error)
        place = column.generated.position if column.generated else None
        if place is None:
            raise failure from error
        raise SqlError(failure.message, line=place.line, column=place.column) from error


def _micros(watermark: WatermarkSpec) -> str:
    """Return SQL for the watermark of a row, in microseconds."""
    if watermark.delay_micros is not None:
        return f"unix_micros(`{watermark.event_time}`) - {watermark.delay_micros}L"
    return f"unix_micros(CAST({watermark.sql} AS TIMESTAMP))"
