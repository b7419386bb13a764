"""The watermark of a source with partitions."""

from __future__ import annotations

import pytest

from resurgence.graph.watermarks import merged_marks, partitioned_watermark

Marks = dict[str, int | None]


@pytest.mark.parametrize(
    ("before", "marks", "idle", "expected"),
    [
        (None, {"a": 5, "b": 9}, [], 5),
        (None, {"a": 5, "b": 9}, ["a"], 9),
        (None, {"a": 5, "b": None}, [], None),
        (None, {"a": 5, "b": None}, ["b"], 5),
        (None, {"a": None, "b": None}, ["a", "b"], None),
        # All idle: nothing holds it back.
        (None, {"a": 5, "b": 9}, ["a", "b"], 9),
        # It never goes backwards: a partition appears, or one that was idle has old rows.
        (7, {"a": 9, "b": None}, [], 7),
        (9, {"a": 6, "b": 10}, [], 9),
        (7, {}, [], 7),
    ],
)
def test_it_is_the_lowest_of_the_partitions_that_are_not_idle(
    before: int | None, marks: Marks, idle: list[str], expected: int | None
) -> None:
    assert partitioned_watermark(before, marks, idle) == expected


def test_the_watermark_of_a_partition_never_goes_backwards() -> None:
    assert merged_marks({"a": 5, "b": 9}, {"a": 7, "b": 3, "c": 1}, ["a", "b", "c"]) == {
        "a": 7,
        "b": 9,
        "c": 1,
    }


def test_a_partition_that_no_longer_exists_has_no_watermark() -> None:
    assert merged_marks({"a": 5, "b": 9}, {}, ["b", "c"]) == {"b": 9}
