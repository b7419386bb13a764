"""Rows of state found by key, and the newest of each group: without Spark."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from resurgence.engine.tables.newest_rows import EPOCH, newest_of, newest_rows
from resurgence.engine.tables.sorted_rows import KEY, SortedRows, by_key

Version = tuple[int, str | None, int]
"""The hash of a key, the key, and the epoch of a row."""

VERSIONS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([None, "a", "b"]), st.integers(1, 50)),
    unique=True,
    max_size=30,
)
"""So few hashes that different keys collide."""


def table(rows: list[Version]) -> pa.Table:
    return pa.table(
        {
            KEY: pa.array([each[0] for each in rows], pa.int64()),
            "name": pa.array([each[1] for each in rows], pa.string()),
            EPOCH: pa.array([each[2] for each in rows], pa.int64()),
        }
    )


def newest(rows: list[Version]) -> dict[tuple[int, str | None], int]:
    found: dict[tuple[int, str | None], int] = {}
    for key, name, epoch in rows:
        found[key, name] = max(epoch, found.get((key, name), 0))
    return found


@given(VERSIONS)
def test_the_newest_row_of_each_group_stays_also_if_hashes_collide(rows: list[Version]) -> None:
    merged = newest_rows(table(rows), ["name"]).to_pylist()
    assert {(each[KEY], each["name"]): each[EPOCH] for each in merged} == newest(rows)
    assert len(merged) == len(newest(rows))
    assert [each[KEY] for each in merged] == sorted(each[KEY] for each in merged)


@given(VERSIONS, VERSIONS)
def test_the_newest_row_of_a_group_is_found_also_if_hashes_collide(
    rows: list[Version], groups: list[Version]
) -> None:
    places = newest_of(table(groups), table(rows), ["name"]).to_pylist()
    expected = newest(rows)
    for (key, name, _), place in zip(groups, places, strict=True):
        assert (place is None) == ((key, name) not in expected)
        if place is not None:
            assert rows[place] == (key, name, expected[key, name])


def test_keys_without_a_number_are_one_group() -> None:
    keys = pa.array([math.nan, math.nan, 0.0, -0.0])
    rows = pa.table({KEY: [1, 1, 2, 2], "x": keys, EPOCH: [1, 2, 1, 2]})
    assert newest_rows(rows, ["x"])[EPOCH].to_pylist() == [2, 2]
    assert newest_of(rows, rows, ["x"]).to_pylist() == [1, 1, 3, 3]


def test_groups_without_keys_are_one_group() -> None:
    rows = pa.table({KEY: [0, 0], EPOCH: [1, 2]})
    assert newest_rows(rows, [])[EPOCH].to_pylist() == [2]
    assert newest_of(rows.slice(0, 1), rows, []).to_pylist() == [1]


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1), max_size=4),
    st.sets(st.integers(0, 60)),
    st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_exactly_the_rows_of_the_wanted_keys_are_found(
    batches: list[list[int]], wanted: set[int], bounds: tuple[int, int]
) -> None:
    rows = SortedRows(
        [
            by_key(pa.RecordBatch.from_pydict({KEY: each, "place": [*range(len(each))]}))
            for each in batches
        ]
    )
    everything = sorted(key for each in batches for key in each)
    found = [
        key
        for batch in rows.find(np.array(sorted(wanted), np.int64))
        for key in batch.column(KEY).to_pylist()
    ]
    assert sorted(found) == [each for each in everything if each in wanted]
    start, end = min(bounds), max(bounds)
    between = [key for each in rows.between(start, end) for key in each.column(KEY).to_pylist()]
    assert sorted(between) == [each for each in everything if start <= each < end]
