"""The columns of rows and those of their table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from resurgence.connectors.iceberg.columns import fits, missing_columns, require_storable
from resurgence.errors import UserError


def test_only_missing_columns_are_added_and_they_are_nullable() -> None:
    stored = pa.schema([("id", pa.int64()), ("Name", pa.large_string())])
    rows = pa.schema([("ID", pa.int32()), ("name", pa.string()), pa.field("n", pa.int32(), False)])
    assert missing_columns("t", stored, rows) == (pa.field("n", pa.int32(), nullable=True),)


def test_a_column_of_another_type_is_refused() -> None:
    stored, rows = pa.schema([("id", pa.int32())]), pa.schema([("id", pa.int64())])
    with pytest.raises(UserError, match=r"column 'id' is of type int64, but .* has int32"):
        missing_columns("t", stored, rows)


def test_a_required_column_that_is_not_written_is_refused() -> None:
    stored = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    with pytest.raises(UserError, match="requires a value in column 'id'"):
        missing_columns("t", stored, pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize(
    ("given", "stored", "expected"),
    [
        (pa.int8(), pa.int32(), True),
        (pa.float32(), pa.float64(), True),
        (pa.int32(), pa.float64(), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), True),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), False),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), True),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.binary(), False),
        (pa.list_(pa.int32()), pa.large_list(pa.int64()), True),
        (pa.list_(pa.string()), pa.list_(pa.int64()), False),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.large_string(), pa.int64()), True),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), True),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())]), False),
        (pa.struct([("a", pa.int32())]), pa.int32(), False),
    ],
)
def test_values_may_be_stored_in_wider_types(
    given: pa.DataType, stored: pa.DataType, expected: bool
) -> None:
    assert fits(given, stored) is expected


def test_a_type_that_iceberg_lacks_is_refused() -> None:
    with pytest.raises(UserError, match="column 'd' is of type"):
        require_storable("t", pa.schema([("d", pa.list_(pa.duration("us")))]))
    require_storable("t", pa.schema([("d", pa.list_(pa.int64()))]))
