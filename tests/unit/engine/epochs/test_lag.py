"""How far partitions are behind."""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.connectors.contract import PartitionSpan, Source
from resurgence.engine.epochs.lag import MOST_PARTITIONS, PartitionLag, lag_summary, partition_lag
from resurgence.state.records import InputRange

RANGE = InputRange(start={}, end={}, rows=0)


class ThreePartitions(Source):
    """A source with unread rows."""

    def partitions(self, input_range: InputRange) -> tuple[PartitionSpan, ...]:
        return tuple(PartitionSpan(name, number, 0) for number, name in enumerate("abc"))

    def unread(self) -> Mapping[str, int]:
        return {"b": 4, "c": 9}


def lag(partition: str, rows: int, seconds: float | None) -> PartitionLag:
    return PartitionLag(table="t", partition=partition, rows=rows, seconds=seconds)


def test_lag_is_the_age_of_the_newest_row_while_others_are_unread() -> None:
    source = ThreePartitions()  # type: ignore[abstract]
    found = [*partition_lag("t", source, RANGE, {"a": 1, "b": 2_000_000}, 3_500_000)]
    assert found == [lag("a", 0, 0.0), lag("b", 4, 1.5), lag("c", 9, None)]


def test_a_record_from_the_future_is_no_lag() -> None:
    source = ThreePartitions()  # type: ignore[abstract]
    ages = [each.seconds for each in partition_lag("t", source, RANGE, {"b": 9}, 1)]
    assert ages == [0.0, 0.0, None]


def test_the_summary_has_totals_and_the_partitions_that_are_furthest_behind() -> None:
    assert lag_summary([]) is None
    many = [lag(f"t/{number}", number, number / 2) for number in range(100)]
    found = lag_summary(many)
    assert found is not None
    assert (found.rows, found.seconds) == (sum(range(100)), 49.5)
    assert len(found.partitions) == MOST_PARTITIONS
    assert found.partitions[0] == many[-1]
