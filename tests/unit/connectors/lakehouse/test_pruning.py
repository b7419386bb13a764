"""Which files may hold a changed key, by their statistics."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from resurgence.connectors.lakehouse.pruning import (
    ValueRange,
    may_hold,
    merged_ranges,
    ranges_as_json,
)
from resurgence.connectors.lakehouse.table_file import ColumnStatistics


def values(low: object, high: object, *, nulls: bool = False) -> ValueRange:
    return ValueRange(low, high, may_be_null=nulls)


NULLS = ValueRange(may_have_values=False)


@pytest.mark.parametrize(
    ("changes", "file", "held"),
    [
        (values(1, 5), values(5, 9), True),
        (values(1, 4), values(5, 9), False),
        (values(10, 12), values(5, 9), False),
        (values("a", "m"), values("n", "z"), False),
        (values(1, 4), ValueRange(), True),
        (values(1, 4, nulls=True), values(5, 9, nulls=True), True),
        (values(1, 4, nulls=True), values(5, 9), False),
        (NULLS, values(5, 9), False),
        (NULLS, values(5, 9, nulls=True), True),
        (values(5, 6), NULLS, False),
        (values(5, 6), values("a", "b"), True),
    ],
)
def test_a_file_is_left_out_only_if_its_statistics_prove_it(
    changes: ValueRange, file: ValueRange, held: bool
) -> None:
    assert may_hold({"id": changes}, {"id": file}) is held


def test_every_key_column_can_leave_a_file_out() -> None:
    changes = {"id": values(1, 9), "day": values(date(2024, 1, 1), date(2024, 1, 2))}
    file = {"id": values(1, 9), "day": values(date(2024, 1, 3), date(2024, 1, 3))}
    assert not may_hold(changes, file)
    assert may_hold(changes, {"id": values(1, 9)})


@pytest.mark.parametrize(
    "bounds",
    [
        (1, 5),
        ("a", "zz"),
        (date(2024, 1, 1), date(2024, 2, 1)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (Decimal("1.10"), Decimal("2.05")),
    ],
)
def test_ranges_survive_json(bounds: tuple[Any, Any]) -> None:
    stored = ranges_as_json([ColumnStatistics(("id",), 0, bounds=bounds)], 3, ["id"])
    restored = json.loads(json.dumps(stored))
    assert merged_ranges([restored], ["id"]) == {"id": values(*bounds)}


def test_ranges_of_several_files_are_merged() -> None:
    low = ranges_as_json([ColumnStatistics(("id",), 1, bounds=(1, 5))], 3, ["id"])
    high = ranges_as_json([ColumnStatistics(("id",), 0, bounds=(4, 9))], 3, ["id"])
    empty = ranges_as_json([ColumnStatistics(("id",), 3)], 3, ["id"])
    assert merged_ranges([low, high], ["id"]) == {"id": values(1, 9, nulls=True)}
    assert merged_ranges([high, empty], ["id"]) == {"id": values(4, 9, nulls=True)}
    assert merged_ranges([empty], ["id"]) == {"id": NULLS}
    assert merged_ranges([high, {}], ["id"]) == {"id": ValueRange()}


def test_a_column_with_nan_or_without_comparable_values_has_no_bounds() -> None:
    nan = ranges_as_json([ColumnStatistics(("id",), 0, nans=1, bounds=(1.0, 2.0))], 3, ["id"])
    flags = ranges_as_json([ColumnStatistics(("id",), 0, bounds=(False, True))], 3, ["id"])
    for each in (nan, flags):
        assert merged_ranges([each], ["id"]) == {"id": values(None, None)}
