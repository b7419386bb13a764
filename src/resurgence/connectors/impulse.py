"""`impulse`: a generator of numbered rows, made inside Spark, the same for the same offset.

Columns: `counter`, `timestamp` and `subtask`. The first timestamp and the number of subtasks are
part of the offset, so that a range read again, by anyone and at any parallelism, gives the same
rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from resurgence.config import parse_duration
from resurgence.errors import BadRecord, UserError
from resurgence.graph.values import Column
from resurgence.state.records import InputRange, Offset

COLUMNS = (
    Column(name="counter", type="BIGINT", nullable=False),
    Column(name="timestamp", type="TIMESTAMP", nullable=False),
    Column(name="subtask", type="BIGINT", nullable=False),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WORDED = re.compile(r"(\d+(?:\.\d+)?)\s*(microsecond|millisecond|second|minute|hour|day)s?")


class ImpulseSource:
    """Counts, at a rate of so many a second or as fast as it can."""

    drops_bad_records = False

    def __init__(self, options: Mapping[str, str], columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        rate = options.get("event_rate")
        self._rate = None if rate is None else _positive("event_rate", rate)
        count = options.get("message_count")
        self._count = (
            None if count is None else int(_positive("message_count", count, allow_zero=True))
        )
        interval = options.get("event_time_interval")
        if interval is not None:
            self._interval = max(1, _interval_micros(interval))
        else:
            self._interval = max(1, round(1_000_000 / self._rate)) if self._rate else 1000
        start = options.get("start_time")
        self._start = None if start is None else _instant(start)

    def check(self) -> None:
        """A generator is always there."""

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        start = self._start or now
        return {
            "counter": 0,
            "start_micros": (start - _EPOCH) // _MICROSECOND,
            "subtasks": parallelism,
            "began_micros": (now - _EPOCH) // _MICROSECOND,
        }

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange | None:
        counter = _whole(offset, "counter")
        end = counter + most_rows
        if self._rate is not None:
            elapsed = (now - _EPOCH) / _MICROSECOND - _whole(offset, "began_micros")
            end = min(end, int(elapsed / 1_000_000 * self._rate))
        if self._count is not None:
            end = min(end, self._count)
        final = self._count is not None and end >= self._count
        if end <= counter and not final:
            return None
        return InputRange(
            start=offset, end={**offset, "counter": end}, rows=end - counter, final=final
        )

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        start, end = _whole(input_range.start, "counter"), _whole(input_range.end, "counter")
        first = _whole(input_range.start, "start_micros")
        subtasks = _whole(input_range.start, "subtasks")
        partitions = parallelism if end - start > 10_000 else 1
        made = {
            "counter": "id",
            "timestamp": f"timestamp_micros({first} + id * {self._interval})",
            "subtask": f"id % {subtasks}",
        }
        rows = spark.range(start, end, 1, partitions)
        return rows.selectExpr(
            *(
                f"CAST({made[each.name.lower()]} AS {each.type}) AS `{each.name}`"
                for each in self._columns
            )
        )

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        start, end = _whole(input_range.start, "counter"), _whole(input_range.end, "counter")
        if end - start < 2:
            return None
        middle = (start + end) // 2
        cut: Offset = {**input_range.start, "counter": middle}
        return (
            InputRange(start=input_range.start, end=cut, rows=middle - start),
            InputRange(start=cut, end=input_range.end, rows=end - middle, final=input_range.final),
        )

    def in_words(self, input_range: InputRange) -> str:
        start, end = _whole(input_range.start, "counter"), _whole(input_range.end, "counter")
        return f"after counter {start}, up to counter {end}"

    def bad_record(self, input_range: InputRange, position: int) -> BadRecord:
        return BadRecord(f"impulse made a bad record at {position} of {input_range.start}")


def _whole(offset: Offset, name: str) -> int:
    value = offset.get(name)
    if not isinstance(value, int):
        raise UserError(
            f"'{name}' is missing in the offset {offset}", hint="was the checkpoint edited by hand?"
        )
    return value


def _positive(name: str, text: str, *, allow_zero: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0 or (value == 0 and not allow_zero):
        raise UserError(f"option '{name}' is '{text}'", hint="give a positive number")
    return value


def _interval_micros(text: str) -> int:
    """`5s`, `'1 second'`, or a bare number of nanoseconds."""
    if text.strip().isdigit():
        return int(text) // 1000
    worded = _WORDED.fullmatch(text.strip().lower())
    if worded:
        return timedelta(**{f"{worded[2]}s": float(worded[1])}) // _MICROSECOND
    try:
        span = parse_duration(text)
    except ValueError as error:
        raise UserError(
            f"option 'event_time_interval' is '{text}'", hint="write it as '1 second' or 5ms"
        ) from error
    assert isinstance(span, timedelta)
    return span // _MICROSECOND


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UserError(
            f"option 'start_time' is '{text}'", hint="write it as 2024-01-01T00:00:00"
        ) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)
