"""Reads a range of a source, adds the computed columns of its table, and observes watermarks, bad
records and, if the source does not know them, counts.

The job that reads the rows observes them, not a second one. Observed values are computed as columns
first, because Spark compiles columns, and interprets observed expressions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from resurgence.connectors.contract import (
    BAD_POSITION,
    PARTITION,
    RECORD_BYTES,
    RECORD_POSITION,
    RECORD_TIME,
    PartitionSpan,
    Source,
    left_out,
)
from resurgence.engine.functions.planning_time import reads_planning_time, with_planning_time
from resurgence.engine.operators.dead_letters import bad_letters
from resurgence.engine.operators.replayed_records import ReplayedRecords
from resurgence.engine.spark.empty_rows import empty_rows
from resurgence.engine.spark.errors import translate
from resurgence.engine.tables.observed import observed
from resurgence.errors import BadRecord, SqlError
from resurgence.graph.specs.base import duration_text
from resurgence.graph.specs.source import SourceSpec, WatermarkSpec
from resurgence.graph.values import CHANGE, EVENT_TIME, OPERATION, PLANNED_AT, POSITION, Column
from resurgence.spark_plans.projection import Projection
from resurgence.sql.catalog.table_columns import computed_sql
from resurgence.state.records import InputRange, RecordPosition

_WATERMARK = "__watermark"
_AHEAD = "__ahead"
_GOOD = f"`{BAD_POSITION}` IS NULL"


@dataclass(frozen=True)
class Seen:
    """Observed values of a range."""

    watermark: int | None = None
    """Of a source without partitions."""
    partition_watermarks: Mapping[str, int] = field(default_factory=dict)
    """Of each partition that had good rows."""
    record_times: Mapping[str, int] = field(default_factory=dict)
    """When the newest record was written, in microseconds, by partition with unread rows."""
    rows: int | None = None
    """None if the source knows it."""
    bytes: int = 0
    bad_rows: int = 0
    first_bad: RecordPosition | None = None
    first_ahead: RecordPosition | None = None
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
    names: Mapping[int, str] = field(default_factory=dict)
    """The partitions with rows, by number."""

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
            watermark=found.get("watermark"),
            partition_watermarks=self._by_partition(found, _WATERMARK),
            record_times=self._by_partition(found, RECORD_TIME),
            rows=found.get("rows"),
            bytes=found.get("bytes") or 0,
            bad_rows=found.get("bad", 0),
            first_bad=_position(found.get("first_bad")),
            first_ahead=_position(found.get("first_ahead")),
        )

    def _by_partition(self, found: Mapping[str, int | None], column: str) -> dict[str, int]:
        """Return the values of `_maxima` for a column, by the name of the partition."""
        values = ((name, found.get(f"{column}_{number}")) for number, name in self.names.items())
        return {name: value for name, value in values if value is not None}


def _position(row: Row | None) -> RecordPosition | None:
    return None if row is None else RecordPosition(**row.asDict())


class SourceReader:
    """One source of a running job."""

    def __init__(self, operator: SourceSpec, source: Source, replayed: ReplayedRecords) -> None:
        self.source = source
        self._id = operator.id
        self._replayed = replayed
        self._columns = operator.columns
        self._watermark = operator.watermark
        self._max_future = operator.max_future_micros
        self._reads_time = reads_planning_time(operator)
        self._parsed: dict[str, SparkColumn] = {}
        self._timed: dict[str, Projection] = {}

    def _expression(self, sql: str) -> SparkColumn:
        """Return an expression, which is parsed once."""
        if sql not in self._parsed:
            self._parsed[sql] = F.expr(sql)
        return self._parsed[sql]

    def read(
        self, spark: SparkSession, input_range: InputRange, parallelism: int, time: int
    ) -> Reading:
        """Read a range; `time` is when the epoch was planned, in microseconds."""
        rows = self._rows(spark, input_range, parallelism)
        spans = [each for each in self.source.partitions(input_range) if each.rows]
        # Replayed rows are of no partition, and move no watermark.
        is_mixed = len(spans) > 1 or input_range.replay is not None
        may_be_bad = BAD_POSITION in rows.columns
        if self._reads_time:
            rows = with_planning_time(rows, time)
        rows = with_generated(rows, self._columns)
        measures = []
        if self._watermark is not None and self._max_future is not None:
            rows = _with_future_as_bad(rows, self._watermark, self._max_future, time)
            measures.append(self._expression(f"min(`{_AHEAD}`) AS first_ahead"))
        if self._watermark is not None:
            mark = _micros(self._watermark)
            mark = f"IF({_GOOD}, {mark}, NULL)" if may_be_bad else mark
            timed = Projection("*", event_time(self._watermark), f"{mark} AS `{_WATERMARK}`")
            rows = self._timed.setdefault(mark, timed).of(rows)
            if spans:
                measures += self._maxima(_WATERMARK, spans, is_mixed=is_mixed)
            elif PARTITION not in rows.columns:
                measures.append(self._expression(f"max(`{_WATERMARK}`) AS watermark"))
        if may_be_bad:
            measures.append(self._expression(f"count(`{BAD_POSITION}`) AS bad"))
            measures.append(self._expression(f"min(`{BAD_POSITION}`) AS first_bad"))
        if not self.source.counts_exactly:
            measures.append(self._expression("count(*) AS rows"))
            measures.append(self._expression(f"sum(`{RECORD_BYTES}`) AS bytes"))
        unread = self.source.unread()
        lagging = [each for each in spans if unread.get(each.name)]
        measures += self._maxima(RECORD_TIME, lagging, is_mixed=is_mixed)
        if not measures:
            return Reading(rows, rows, None)
        observation = Observation()
        seen = rows.observe(observation, *measures)
        good = seen.where(self._expression(_GOOD)) if may_be_bad else seen
        names = {each.number: each.name for each in spans}
        return Reading(good, rows, observation, tuple(measures), names)

    def _maxima(
        self, column: str, spans: Sequence[PartitionSpan], *, is_mixed: bool
    ) -> Iterator[SparkColumn]:
        """Yield the maximum of a column in some partitions. `is_mixed`: there are rows of others."""
        for each in spans:
            number = each.number
            value = f"IF(`{PARTITION}` = {number}, `{column}`, NULL)" if is_mixed else f"`{column}`"
            yield self._expression(f"max({value}) AS `{column}_{number}`")

    def _rows(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        """Return the rows of a range and of its replay."""
        if input_range.replay is None:
            return self.source.read(spark, input_range, parallelism)
        again = self.source.parse(self._again(spark, input_range))
        if not input_range.rows:
            return again
        rows = self.source.read(spark, input_range, parallelism)
        return rows.unionByName(again, allowMissingColumns=True)

    def records(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        """Return the raw records of a range and of its replay."""
        if input_range.replay is None:
            return self.source.records(spark, input_range, parallelism)
        again = self._again(spark, input_range)
        if not input_range.rows:
            return again
        return self.source.records(spark, input_range, parallelism).unionByName(again)

    def _again(self, spark: SparkSession, input_range: InputRange) -> DataFrame:
        assert input_range.replay is not None
        records = self._replayed.read(spark, self._id, input_range.replay.number)
        return left_out(records, input_range.excluded)

    def bad_letters(self, reading: Reading, records: DataFrame, time: int) -> DataFrame:
        """Return the bad records of a range as dead letters. `records` are its raw records."""
        is_ahead = f"`{_AHEAD}` IS NOT NULL" if _AHEAD in reading.everything.columns else "false"
        bad = reading.everything.where(f"NOT ({_GOOD})").selectExpr(
            f"`{BAD_POSITION}` AS position", f"{is_ahead} AS is_ahead"
        )
        explain = self.source.explainer()
        return bad_letters(records, bad, self._id, explain, self._ahead_reason(time))

    def bad_record(self, input_range: InputRange, seen: Seen, time: int) -> BadRecord:
        """Return the error for the first bad record of a range."""
        assert seen.first_bad is not None
        error = self.source.bad_record(input_range, seen.first_bad)
        if seen.first_bad != seen.first_ahead or self._max_future is None:
            return error
        return BadRecord(
            f"{error.position}: {self._ahead_reason(time)}",
            hint="Check the producer's clock and timestamp_unit. Raise max_future to accept the"
            " record, or set bad_data = 'dead_letter' to store such records aside, or 'drop' to"
            " drop and count them.",
            position=error.position,
        )

    def _ahead_reason(self, time: int) -> str:
        planned_at = datetime.fromtimestamp(time / 1_000_000, UTC).isoformat(timespec="seconds")
        return (
            f"event time is more than {duration_text(self._max_future or 0)} ahead of the epoch's"
            f" planning time, {planned_at}"
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
        observed = (PARTITION, RECORD_TIME, RECORD_BYTES)
        internal = (CHANGE, BAD_POSITION, RECORD_POSITION, *observed)
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
