"""The options of tables whose records are lines, shared by all connectors of such tables."""

from __future__ import annotations

from enum import StrEnum

from resurgence.graph.table_options import (
    TIMESTAMP_FORMAT,
    UNSTRUCTURED,
    TableOptions,
    option,
)


class BadData(StrEnum):
    """What happens to a bad record."""

    FAIL = "fail"
    DROP = "drop"


class TimestampUnit(StrEnum):
    """The unit of a whole number that is a timestamp."""

    SECONDS = "seconds"
    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"


class TimestampFormat(StrEnum):
    """How timestamps are written."""

    RFC3339 = "rfc3339"
    UNIX_MILLIS = "unix_millis"


class LineSourceOptions(TableOptions):
    """The options of a source whose records are lines."""

    bad_data: BadData = option(
        "`fail` (default): a line that does not parse, or lacks a `NOT NULL` value, fails the job"
        " with line and column. `drop`: such lines are dropped and counted",
        default=BadData.FAIL,
    )
    timestamp_unit: TimestampUnit | None = option(
        "the unit of whole numbers in `TIMESTAMP` columns: `seconds` (default), `millis`, `micros`,"
        " `nanos`. `'timestamp_unit.column'` sets the unit of one column",
        default=None,
        per_column=True,
    )
    unstructured: bool | None = option(
        "`true`: a line is not parsed or validated; its text is the only column that the table"
        " reads, `value TEXT` or `value JSON`. Only a line that is not UTF-8 is bad",
        default=None,
        name=UNSTRUCTURED,
    )


class LineSinkOptions(TableOptions):
    """The options of a sink that can write lines."""

    timestamp_format: TimestampFormat | None = option(
        "how `json` writes timestamps: `rfc3339` (default), or `unix_millis`, whole milliseconds"
        " since 1970",
        default=None,
        name=TIMESTAMP_FORMAT,
    )

    @property
    def timestamps(self) -> TimestampFormat:
        return self.timestamp_format or TimestampFormat.RFC3339
