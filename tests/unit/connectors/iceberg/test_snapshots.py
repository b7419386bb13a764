"""Positions in the history of a table, and the rows that follow them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from resurgence.connectors.iceberg.reading.snapshots import (
    FileRows,
    SnapshotLink,
    TablePosition,
    advanced,
    following,
    is_complete,
    newest_before,
)
from resurgence.errors import UserError

FIRST, SECOND, THIRD = (
    SnapshotLink(1, None, 100, 1),
    SnapshotLink(2, 1, 200, 2),
    SnapshotLink(3, 2, 300, 3),
)
HISTORY = {each.id: each for each in (FIRST, SECOND, THIRD)}


def ids(found: list[SnapshotLink] | None) -> list[int] | None:
    return None if found is None else [each.id for each in found]


def test_snapshots_follow_in_the_order_in_which_they_were_committed() -> None:
    assert ids(following(HISTORY, 3, None)) == [1, 2, 3]
    assert ids(following(HISTORY, 3, 1, 1)) == [2, 3]
    assert ids(following(HISTORY, 3, 3, 3)) == []
    assert ids(following({}, None, None)) == []


def test_a_snapshot_that_was_rolled_back_has_no_followers() -> None:
    branched = HISTORY | {4: SnapshotLink(4, 1, 400, 4)}
    assert following(branched, 4, 3, 3) is None


def test_history_continues_after_an_expired_snapshot_but_not_before_it() -> None:
    expired = {each: HISTORY[each] for each in (2, 3)}
    assert ids(following(expired, 3, 1, 1)) == [2, 3]
    assert following(expired, 3, None) is None
    assert not is_complete(expired, 3)
    assert is_complete(HISTORY, 3)


def test_a_link_that_was_cut_by_an_expiry_is_not_the_beginning() -> None:
    cut = {3: THIRD, 2: replace(SECOND, parent=None)}
    assert ids(following(cut, 3, 1, 1)) == [2, 3]
    assert following(cut, 3, None) is None
    assert not is_complete(cut, 3)
    gap = {3: replace(THIRD, parent=None)}
    assert following(gap, 3, 1, 1) is None


def test_tables_that_do_not_count_commits_begin_where_there_is_no_parent() -> None:
    assert ids(following({1: replace(FIRST, sequence=0)}, 1, None)) == [1]


def test_an_instant_begins_after_the_newest_snapshot_before_it() -> None:
    found = newest_before(HISTORY, 3, 250)
    assert found is not None
    assert found.id == 2
    assert newest_before(HISTORY, 3, 100) is None


def test_rows_are_taken_file_by_file_up_to_a_limit() -> None:
    start = TablePosition("t", 1, 1)
    taken, position = advanced(start, SECOND, [3, 0, 4], 5)
    assert taken == [FileRows(2, 0, 0, 3), FileRows(2, 2, 0, 2)]
    assert position == TablePosition("t", 2, 2, file=2, row=2)
    rest, end = advanced(position, SECOND, [3, 0, 4], 5)
    assert rest == [FileRows(2, 2, 2, 4)]
    assert end == TablePosition("t", 2, 2)


def test_a_range_that_ends_with_a_file_ends_behind_its_snapshot() -> None:
    taken, end = advanced(TablePosition("t", None), FIRST, [2, 3], 5)
    assert len(taken) == 2
    assert end == TablePosition("t", 1, 1)


def test_a_position_in_the_whole_table_stays_there_until_its_snapshot_is_read() -> None:
    whole = TablePosition("t", 1, 1, file=0, row=0, whole=True)
    _, inside = advanced(whole, FIRST, [10], 4)
    assert inside == TablePosition("t", 1, 1, file=0, row=4, whole=True)
    _, behind = advanced(inside, FIRST, [10], 100)
    assert behind == TablePosition("t", 1, 1)


@pytest.mark.parametrize(
    "position",
    [
        TablePosition("t", None),
        TablePosition("t", 7, file=2, row=3, whole=True),
        TablePosition("t", 7, stop=9, is_bounded=True),
        TablePosition("t", None, stop=None, is_bounded=True),
    ],
)
def test_a_position_survives_its_checkpoint(position: TablePosition) -> None:
    assert TablePosition.of(position.as_offset()) == position


def test_a_damaged_offset_is_refused() -> None:
    with pytest.raises(UserError, match="not a position"):
        TablePosition.of({"line": 1})


def test_a_bounded_source_ends_behind_its_last_snapshot() -> None:
    assert TablePosition("t", 9, stop=9, is_bounded=True).is_at_stop
    assert not TablePosition("t", 9, file=0, stop=9, is_bounded=True).is_at_stop
    assert not TablePosition("t", 9).is_at_stop
