"""The options of tables whose records are lines, shared by all connectors that read or write such."""

from __future__ import annotations

from enum import StrEnum

from resurgence.graph.table_options import (
    TIMESTAMP_FORMAT,
    UNSTRUCTURED,
    TableOptions,
    option,
)


class BadData(StrEnum):
    """What a bad record does."""

    FAIL = "fail"
    DROP = "drop"


class TimestampUnit(StrEnum):
    """What a whole number counts that is a timestamp."""

    SECONDS = "seconds"
    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"


class TimestampFormat(StrEnum):
    """How timestamps are written."""

    RFC3339 = "rfc3339"
    UNIX_MILLIS = "unix_millis"


class LineSourceOptions(TableOptions):
    """Of a source whose records are lines."""

    bad_data: BadData = option(
        "`fail` (default): a line that does not parse, or lacks a `NOT NULL` value, fails the job with"
        " line and column. `drop`: such lines are left out and counted",
        default=BadData.FAIL,
    )
    timestamp_unit: TimestampUnit | None = option(
        "the unit of whole numbers in `TIMESTAMP` columns: `seconds` (default), `millis`, `micros`,"
        " `nanos`. `'timestamp_unit.column'` is that of one column",
        default=None,
        per_column=True,
    )
    unstructured: bool | None = option(
        "`true`: a line is not taken apart or checked; its text is the one column that the table"
        " reads, `value TEXT` or `value JSON`. Only a line that is not UTF-8 is bad",
        default=None,
        name=UNSTRUCTURED,
    )


class LineSinkOptions(TableOptions):
    """Of a sink that can write lines."""

    timestamp_format: TimestampFormat | None = option(
        "how `json` has timestamps: `rfc3339` (default), or `unix_millis`, whole milliseconds since"
        " 1970",
        default=None,
        name=TIMESTAMP_FORMAT,
    )

    @property
    def timestamps(self) -> TimestampFormat:
        return self.timestamp_format or TimestampFormat.RFC3339
