"""Which columns a Delta table can have."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
)

from resurgence.connectors.delta.columns import require_storable
from resurgence.errors import UserError


def require(kind: DataType) -> None:
    columns = StructType([StructField("id", LongType()), StructField("value", kind)])
    require_storable("out", columns, ())


@pytest.mark.parametrize(
    "kind",
    [
        TimestampType(),
        TimestampNTZType(),
        ArrayType(TimestampType()),
        StructType([StructField("time", LongType()), StructField("interval", StringType())]),
    ],
)
def test_types_and_fields_whose_names_resemble_others_are_stored(kind: DataType) -> None:
    require(kind)


@pytest.mark.parametrize(
    "kind",
    [
        TimeType(),
        DayTimeIntervalType(),
        NullType(),
        VariantType(),
        ArrayType(TimeType()),
        MapType(StringType(), VariantType()),
        StructType([StructField("a", ArrayType(NullType()))]),
    ],
)
def test_types_that_delta_lacks_are_refused_at_any_depth(kind: DataType) -> None:
    with pytest.raises(UserError, match="which a Delta table cannot store"):
        require(kind)
