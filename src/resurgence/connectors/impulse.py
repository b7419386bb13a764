"""`impulse`: a generator of numbered rows, computed in Spark, the same for the same offset.

Columns: `counter`, `timestamp` and `subtask`. The first timestamp and the number of subtasks are
part of the offset, so that a range read again, by any process and at any parallelism, has the same
rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.connector import Connector, SourceRole
from resurgence.connectors.contract import whole_number
from resurgence.connectors.formats.options import SourceOptions
from resurgence.connectors.generator import NUMBER, Generator, numbers
from resurgence.durations import parse_duration
from resurgence.graph.table_options import option
from resurgence.graph.values import Column
from resurgence.spark_plans.projection import Projection
from resurgence.state.records import InputRange, Offset

COLUMNS = (
    Column(name="counter", type="BIGINT", nullable=False),
    Column(name="timestamp", type="TIMESTAMP", nullable=False),
    Column(name="subtask", type="BIGINT", nullable=False),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _positive(value: object) -> float:
    number = float(str(value))
    if not math.isfinite(number) or number <= 0:
        raise ValueError(value)
    return number


def _count(value: object) -> int:
    number = float(str(value))
    if not math.isfinite(number) or number < 0:
        raise ValueError(value)
    return int(number)


def _interval_micros(value: object) -> int:
    """Parse `5s`, `'1 second'`, or a bare number of nanoseconds."""
    text = str(value).strip()
    if text.isdigit():
        return int(text) // 1000
    return parse_duration(text.lower()) // _MICROSECOND


def _instant(value: object) -> datetime:
    at = datetime.fromisoformat(str(value))
    return at if at.tzinfo else at.replace(tzinfo=UTC)


PositiveNumber = Annotated[float, BeforeValidator(_positive)]
POSITIVE_HINT = "Use a positive number."


class ImpulseOptions(SourceOptions):
    """The options of an `impulse` source."""

    event_rate: PositiveNumber | None = option(
        "rows per second; without it, as many as possible", default=None, hint=POSITIVE_HINT
    )
    message_count: Annotated[int, BeforeValidator(_count)] | None = option(
        "the number of rows after which the input ends; without it, the input is unbounded",
        default=None,
        hint=POSITIVE_HINT,
    )
    event_time_interval: Annotated[int, BeforeValidator(_interval_micros)] | None = option(
        "event time between two rows: `'1 second'`, `5ms`, or a bare number of nanoseconds; by"
        " default, the time between two rows at `event_rate`, or one millisecond without it",
        default=None,
        hint="Write it as in '1 second' or 5ms.",
    )
    start_time: Annotated[datetime, BeforeValidator(_instant)] | None = option(
        "the first timestamp, as in `'2024-01-01T00:00:00'`; by default the time of the job's first"
        " start",
        default=None,
        hint="Write it as in 2024-01-01T00:00:00.",
    )


class ImpulseSource(Generator):
    """A generator of numbered rows, at a fixed rate or as fast as possible."""

    name = "impulse"

    def __init__(self, options: ImpulseOptions, columns: Sequence[Column]) -> None:
        super().__init__(columns, options.bad_data)
        self._rate = options.event_rate
        self._count = options.message_count
        by_rate = round(1_000_000 / self._rate) if self._rate else 1000
        interval = options.event_time_interval
        self._interval = max(1, by_rate if interval is None else interval)
        """Event time between two rows, in microseconds."""
        self._start = options.start_time
        self._values: dict[tuple[int, int], Projection] = {}

    def check(self) -> None:
        """Nothing to check: a generator is always available."""

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        start = self._start or now
        return {
            "counter": 0,
            "start_micros": (start - _EPOCH) // _MICROSECOND,
            "subtasks": parallelism,
            "began_micros": (now - _EPOCH) // _MICROSECOND,
        }

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange | None:
        counter = whole_number(offset, "counter")
        end = counter + most_rows
        if self._rate is not None:
            elapsed = (now - _EPOCH) / _MICROSECOND - whole_number(offset, "began_micros")
            end = min(end, int(elapsed / 1_000_000 * self._rate))
        if self._count is not None:
            end = min(end, self._count)
        final = self._count is not None and end >= self._count
        if end <= counter and not final:
            return None
        return InputRange(
            start=offset, end={**offset, "counter": end}, rows=end - counter, final=final
        )

    def numbered(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        start, end = (
            whole_number(input_range.start, "counter"),
            whole_number(input_range.end, "counter"),
        )
        first = whole_number(input_range.start, "start_micros")
        subtasks = whole_number(input_range.start, "subtasks")
        values = self._values.setdefault((first, subtasks), self._computed(first, subtasks))
        return values.of(numbers(spark, start, end, parallelism))

    def _computed(self, first: int, subtasks: int) -> Projection:
        """Return the columns of numbers: those of a job, by its first timestamp and subtasks."""
        expressions = {
            "counter": "id",
            "timestamp": f"timestamp_micros({first} + id * {self._interval})",
            "subtask": f"id % {subtasks}",
        }
        declared = (
            f"CAST({expressions[each.name.lower()]} AS {each.type}) AS `{each.name}`"
            for each in self._columns
        )
        return Projection(*declared, f"id AS `{NUMBER}`")

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        start, end = (
            whole_number(input_range.start, "counter"),
            whole_number(input_range.end, "counter"),
        )
        if end - start < 2:
            return None
        middle = (start + end) // 2
        cut: Offset = {**input_range.start, "counter": middle}
        return (
            InputRange(start=input_range.start, end=cut, rows=middle - start),
            InputRange(start=cut, end=input_range.end, rows=end - middle, final=input_range.final),
        )

    def in_words(self, input_range: InputRange) -> str:
        start, end = (
            whole_number(input_range.start, "counter"),
            whole_number(input_range.end, "counter"),
        )
        return f"after counter {start}, up to counter {end}"


IMPULSE = Connector(
    "impulse",
    source=SourceRole(
        make=lambda options, table: ImpulseSource(options, table.columns),
        options=ImpulseOptions,
        fixed_columns=COLUMNS,
        event_time="timestamp",
    ),
)
