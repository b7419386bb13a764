"""JSON as it is written: columns rendered as JSON objects.

Timestamps are written as ISO 8601 in UTC without a zone, with no, three or six fractional digits.
Nulls are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from resurgence.connectors.formats.contract import VALUE, RecordWriter, WriteSettings
from resurgence.graph.table_options import TIMESTAMP_FORMAT, TableOptions, option


class TimestampFormat(StrEnum):
    """How timestamps are written."""

    RFC3339 = "rfc3339"
    UNIX_MILLIS = "unix_millis"


class JsonSinkOptions(TableOptions):
    """The options of a sink that writes JSON."""

    timestamp_format: TimestampFormat | None = option(
        "how timestamps are written: `rfc3339` (default), or `unix_millis`, whole milliseconds"
        " since 1970",
        default=None,
        name=TIMESTAMP_FORMAT,
    )


@dataclass(frozen=True)
class JsonWriter(RecordWriter):
    """Writes rows as JSON objects."""

    settings: WriteSettings[JsonSinkOptions]

    def render(self, rows: DataFrame) -> DataFrame:
        timestamps = self.settings.format_options.timestamp_format
        return render(rows, timestamps or TimestampFormat.RFC3339, self.settings.passed)


def render(
    rows: DataFrame,
    timestamps: TimestampFormat = TimestampFormat.RFC3339,
    passed: Sequence[str] = (),
) -> DataFrame:
    """Render rows as the column VALUE, a text without newlines, beside the columns `passed`."""
    record = object_sql([each for each in rows.schema if each.name not in passed], timestamps)
    return rows.selectExpr(f"{record} AS {VALUE}", *(f"`{each}`" for each in passed))


def object_sql(
    columns: Sequence[StructField], timestamps: TimestampFormat = TimestampFormat.RFC3339
) -> str:
    """Return SQL for columns as the text of a JSON object."""
    written = _as_millis if timestamps is TimestampFormat.UNIX_MILLIS else timestamp_text
    fields = ", ".join(
        f"{_portable(f'`{each.name}`', each.dataType, written)} AS `{each.name}`"
        for each in columns
    )
    return f"to_json(struct({fields}), map('ignoreNullFields', 'false'))"


def value_sql(column: StructField) -> str:
    """Return SQL for the value of a column, an array, a map or a struct, as JSON text."""
    value = _portable(f"`{column.name}`", column.dataType, timestamp_text)
    return f"to_json({value}, map('ignoreNullFields', 'false'))"


def timestamp_text(timestamp: str) -> str:
    """Return SQL for a timestamp as ISO 8601."""
    # Spark writes as few fractional digits as possible, and none for zero.
    text = f"replace(CAST({timestamp} AS STRING), ' ', 'T')"
    point = f"instr({text}, '.')"
    digits = f"IF(length({text}) - {point} > 3, 6, 3)"
    return f"IF({point} = 0, {text}, rpad({text}, {point} + {digits}, '0'))"


def _as_millis(timestamp: str) -> str:
    return f"unix_millis(CAST({timestamp} AS TIMESTAMP))"


def _portable(sql: str, kind: DataType, written: Callable[[str], str]) -> str:
    """Return SQL for a value as it is written in JSON: timestamps, at any depth, by `written`."""
    if isinstance(kind, TimestampType | TimestampNTZType):
        return written(sql)
    if not _holds_timestamp(kind):
        return sql
    if isinstance(kind, StructType):
        fields = ", ".join(
            f"{_portable(f'{sql}.`{each.name}`', each.dataType, written)} AS `{each.name}`"
            for each in kind
        )
        return f"IF({sql} IS NULL, NULL, struct({fields}))"
    if isinstance(kind, ArrayType):
        return f"transform({sql}, item -> {_portable('item', kind.elementType, written)})"
    if isinstance(kind, MapType):
        value = _portable("item", kind.valueType, written)
        return f"transform_values({sql}, (name, item) -> {value})"
    return sql


def _holds_timestamp(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_timestamp(each.dataType) for each in kind)
    if isinstance(kind, ArrayType):
        return _holds_timestamp(kind.elementType)
    if isinstance(kind, MapType):
        return _holds_timestamp(kind.valueType)
    return isinstance(kind, TimestampType | TimestampNTZType)
