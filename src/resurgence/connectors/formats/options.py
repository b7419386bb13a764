"""The options of tables with records, shared by all connectors of such tables. Each format declares
its own besides.
"""

from __future__ import annotations

from enum import StrEnum

from resurgence.graph.table_options import TableOptions, option


class BadData(StrEnum):
    """What happens to a bad record."""

    FAIL = "fail"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


class TimestampUnit(StrEnum):
    """The unit of a whole number that is a timestamp."""

    SECONDS = "seconds"
    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"


class SourceOptions(TableOptions):
    """The options of every source."""

    bad_data: BadData = option(
        "what happens to a record that does not parse, or lacks a `NOT NULL` value. `fail`"
        " (default): the job fails with its position. `drop`: it is dropped and counted."
        " `dead_letter`: it is counted and stored in the job's [dead letters](dead_letters.md)",
        default=BadData.FAIL,
    )


class RecordSourceOptions(SourceOptions):
    """The options of a source whose records are parsed."""

    timestamp_unit: TimestampUnit | None = option(
        "the unit of whole numbers in `TIMESTAMP` columns: `seconds` (default), `millis`, `micros`,"
        " `nanos`. `'timestamp_unit.column'` sets the unit of one column",
        default=None,
        per_column=True,
    )
