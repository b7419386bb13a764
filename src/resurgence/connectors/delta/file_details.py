"""What Delta's log has of a data file: its partition values as texts, and its statistics. Pure.

Bounds in the log must hold for every value of a column. Timestamps have milliseconds there: readers
allow for one more. Texts are cut, the upper bound to one that is greater.

A column of numbers, times or texts always has bounds, unless it has only nulls: the Arrow dataset of
`deltalake` skips a file whose bounds of a column are missing, if other files have some. Where Arrow
knows none, as of very long texts, they are as wide as the type allows. If there is NaN, which Arrow's
bounds leave out, the upper one is infinite. Spark orders NaN above that, but an upper bound of NaN,
which it writes, makes Arrow skip the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from resurgence.connectors.delta.columns import TableShape
from resurgence.connectors.lakehouse.data_files import (
    FileLayout,
    PartitionValues,
    RequireRows,
    SortField,
)
from resurgence.connectors.lakehouse.table_file import ColumnStatistics, FileFacts, ValueKind
from resurgence.errors import MessageRefused

_INDEXED = 32
"""Delta's default: statistics of the first columns."""
_TEXT = 32
_HIGHEST = chr(0x10FFFF)
_WIDEST = {ValueKind.TEXT: ("", _HIGHEST), ValueKind.FLOAT: (float("-inf"), float("inf"))}
PARTITION, STATISTICS = "partition", "stats"


def describe_as(
    partition_columns: tuple[str, ...],
) -> Callable[[FileFacts, PartitionValues], Mapping[str, JsonValue]]:
    """Return what describes the files of a table that is partitioned by these columns."""

    def describe(facts: FileFacts, values: PartitionValues) -> Mapping[str, JsonValue]:
        texts: dict[str, JsonValue] = {
            name: partition_text(value)
            for name, value in zip(partition_columns, values, strict=True)
        }
        return {PARTITION: texts, STATISTICS: statistics_text(facts)}

    return describe


def file_layout(
    shape: TableShape, columns: Sequence[str], sorted_by: tuple[SortField, ...], target_bytes: int
) -> FileLayout:
    """Return how rows with these columns become files of a table."""
    partitioned_by = shape.partition_columns
    written = {each.lower() for each in columns}
    stored = [
        each
        for each in shape.schema
        if each.name.lower() in written and each.name not in partitioned_by
    ]
    return FileLayout(
        to_arrow_schema(StructType(stored), timezone="UTC"),
        describe_as(partitioned_by),
        lambda batch: batch.select([*partitioned_by]),
        sorted_by,
        target_bytes,
        compression="snappy",
    )


def require_storable_keys(shape: TableShape, keys: Sequence[str]) -> RequireRows:
    """Return what refuses rows whose key the table would store as another one: an empty text in a
    partition column becomes null, so the next change of its row would not find it.
    """
    texts = tuple(
        each.name
        for each in shape.schema
        if each.name in keys
        and each.name in shape.partition_columns
        and isinstance(each.dataType, StringType)
    )

    def require(rows: pa.RecordBatch) -> None:
        for name in texts:
            if pc.any(pc.equal(rows.column(name), "")).as_py():
                raise MessageRefused(
                    f"key column '{name}' of a row is an empty text, which Delta stores as null in"
                    " a partition column",
                    hint=f"Select NULLIF({name}, '') in the query, or do not partition the table by"
                    " it.",
                )

    return require


def partition_text(value: object) -> str | None:
    """Return a partition value as the log has it. Delta has no empty text: it is null."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            at = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return at.strftime("%Y-%m-%d %H:%M:%S.%f")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


def statistics_text(facts: FileFacts) -> str:
    """Return the statistics of a file as JSON."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    known = [*facts.statistics()]
    first = [*dict.fromkeys(each.path[0] for each in known)][:_INDEXED]
    for each in known:
        if each.path[0] not in first:
            continue
        _put(nulls, each.path, each.nulls)
        bounds = _bounds(each, facts.rows)
        if bounds is not None:
            low, high = _lower(bounds[0]), _upper(bounds[1])
            if low is not None and high is not None:
                _put(lowest, each.path, low)
                _put(highest, each.path, high)
    return _json(
        {
            "numRecords": facts.rows,
            "minValues": lowest,
            "maxValues": highest,
            "nullCount": nulls,
        }
    )


def _bounds(column: ColumnStatistics, rows: int) -> tuple[Any, Any] | None:
    """Return values that no value of the column is below or above; None if there are none."""
    if column.bounds is None:
        return _WIDEST.get(column.kind) if column.nulls < rows else None
    low, high = column.bounds
    # NaN within structs is not counted.
    has_nan = column.nans or len(column.path) > 1
    return (low, float("inf")) if column.kind is ValueKind.FLOAT and has_nan else (low, high)


def _json(value: object) -> str:
    """Return JSON, in which decimals are numbers with all their digits."""
    match value:
        case dict():
            members = (f"{json.dumps(name)}: {_json(each)}" for name, each in value.items())
            return f"{{{', '.join(members)}}}"
        case Decimal():
            return format(value, "f")
        case _:
            return json.dumps(value)


def _put(tree: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _lower(value: object) -> object:
    return value[:_TEXT] if isinstance(value, str) else _bound(value)


def _upper(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _TEXT else value[:_TEXT] + _HIGHEST
    return _bound(value)


def _bound(value: object) -> object:
    """Return a bound as the log has it; None if it has none of that type."""
    match value:
        case bool():
            return None
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case int() | float() | Decimal():
            return value
        case datetime():
            at = value.astimezone(UTC) if value.tzinfo else value
            text = at.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return f"{text}Z" if value.tzinfo else text
        case date():
            return value.isoformat()
        case _:
            return None
