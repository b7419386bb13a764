"""Partition values and statistics, as Delta's log has them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.delta.columns import TableShape
from resurgence.connectors.delta.file_details import (
    describe_as,
    partition_text,
    require_storable_keys,
)
from resurgence.connectors.lakehouse.table_file import TableFile
from resurgence.errors import MessageRefused

AT = datetime(2024, 1, 1, 10, 0, 0, 123456)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("", None),
        ("a/b ä", "a/b ä"),
        (7, "7"),
        (True, "true"),
        (date(2024, 2, 29), "2024-02-29"),
        (AT, "2024-01-01 10:00:00.123456"),
        (AT.replace(tzinfo=timezone(timedelta(hours=2))), "2024-01-01 08:00:00.123456"),
        (Decimal("1E+2"), "100"),
    ],
)
def test_partition_values_are_texts(value: object, text: str | None) -> None:
    assert partition_text(value) == text


def test_an_empty_text_is_refused_only_in_a_key_column_that_is_a_partition_column() -> None:
    columns = [StructField(name, StringType()) for name in ("kind", "city", "name")]
    schema = StructType([*columns, StructField("n", LongType())])
    shape = TableShape("file:///table", schema, ("kind", "city", "n"), {})
    require = require_storable_keys(shape, ("kind", "name", "n"))
    rows = {"kind": ["a", None], "city": ["", None], "name": ["", "b"], "n": [1, None]}
    require(pa.RecordBatch.from_pydict(rows))
    with pytest.raises(MessageRefused, match="key column 'kind' of a row is an empty text"):
        require(pa.RecordBatch.from_pydict({**rows, "kind": ["a", ""]}))


def test_bounds_hold_for_every_value() -> None:
    columns = {
        "id": pa.array([1, None, 3], pa.int64()),
        "long": pa.array(["x" * 40, "y" * 40, None]),
        "at": pa.array([AT.replace(tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "local": pa.array([AT] * 3, pa.timestamp("us")),
        "nan": pa.array([1.0, float("nan"), 2.0]),
        "infinite": pa.array([1.0, float("inf"), 2.0]),
        "only_nan": pa.array([float("nan")] * 3),
        "only_null": pa.array([None] * 3, pa.float64()),
        "huge": pa.array(["x" * 5000] * 3),
        "flag": pa.array([True] * 3),
        "place": pa.array(
            [{"x": 1, "y": 1.5}, None, {"x": 2, "y": float("nan")}],
            pa.struct([("x", pa.int32()), ("y", pa.float64())]),
        ),
        "price": pa.array([Decimal("1.25"), Decimal("12345678901234567890.01"), None]),
    }
    table = pa.table(columns)
    file = TableFile(table.schema, "snappy")
    file.add(table.to_batches()[0])
    details = describe_as(("day",))(file.finish(), (date(2024, 1, 1),))
    assert details["partition"] == {"day": "2024-01-01"}
    assert json.loads(str(details["stats"]), parse_float=Decimal) == {
        "numRecords": 3,
        "minValues": {
            "id": 1,
            "long": "x" * 32,
            "at": "2024-01-01T10:00:00.123Z",
            "local": "2024-01-01T10:00:00.123",
            "nan": 1,
            "infinite": 1,
            "only_nan": "-Infinity",
            "huge": "",
            "place": {"x": 1, "y": Decimal("1.5")},
            "price": Decimal("1.25"),
        },
        "maxValues": {
            "id": 3,
            "long": "y" * 32 + chr(0x10FFFF),
            "at": "2024-01-01T10:00:00.123Z",
            "local": "2024-01-01T10:00:00.123",
            **dict.fromkeys(("nan", "infinite", "only_nan"), "Infinity"),
            "huge": chr(0x10FFFF),
            "place": {"x": 2, "y": "Infinity"},
            "price": Decimal("12345678901234567890.01"),
        },
        "nullCount": {
            **dict.fromkeys(("at", "local", "nan", "infinite", "only_nan", "huge", "flag"), 0),
            **dict.fromkeys(("id", "long", "price"), 1),
            "only_null": 3,
            "place": {"x": 1, "y": 1},
        },
    }
