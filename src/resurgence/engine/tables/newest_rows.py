"""Which row of a group is the newest, among rows from several files. Over Arrow columns, without a
loop over rows.

Rows are compared by the hash of their key first, then by the key itself: two keys with the same
hash are different groups. That is rare, so these rows alone are compared one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from resurgence.engine.tables.sorted_rows import KEY

EPOCH = "__epoch"
"""The column with the epoch that wrote a row. Of the rows of a group the one with the highest epoch
is valid.
"""

_Places: TypeAlias = npt.NDArray[np.int64]


def newest_of(groups: pa.Table, found: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Return, for each of `groups`, the place of its newest row in `found`, or null."""
    order = _in_order(found)
    hashes = _hashes(found)[order]
    wanted = _hashes(groups)
    starts = np.searchsorted(hashes, wanted, "left")
    ends = np.searchsorted(hashes, wanted, "right")
    has_row = starts < ends
    places = np.zeros(len(wanted), np.int64)
    places[has_row] = order[starts[has_row]]
    candidates = found.select(keys).take(pa.array(places[has_row]))
    is_same = _same(groups.select(keys).filter(pa.array(has_row)), candidates)
    for row in np.flatnonzero(has_row)[~is_same]:
        own = [groups[each][int(row)] for each in keys]
        others = order[starts[row] : ends[row]]
        match = [each for each in others if _values(found, each, keys) == _texts(own)]
        has_row[row], places[row] = bool(match), match[0] if match else 0
    return pa.array(places, mask=~has_row)


def newest_rows(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the newest row of each group, in the order of `KEY`."""
    order = _in_order(rows)
    ordered = rows.take(pa.array(order))
    hashes = _hashes(ordered)
    is_repeated = hashes[1:] == hashes[:-1]
    places = np.flatnonzero(is_repeated) + 1
    before, after = (ordered.select(keys).take(pa.array(each)) for each in (places - 1, places))
    is_same = _same(before, after)
    keep = np.ones(len(hashes), bool)
    keep[places] = False
    for start in np.unique(hashes[places[~is_same]]):
        first, last = np.searchsorted(hashes, [start, start + 1])
        known: set[tuple[str, ...]] = set()
        for place in range(first, last):
            key = _values(ordered, place, keys)
            keep[place] = key not in known
            known.add(key)
    return ordered.filter(pa.array(keep))


def _in_order(rows: pa.Table) -> _Places:
    """Return the places of rows by `KEY`, the newest of each first."""
    epochs = rows[EPOCH].to_numpy()
    return np.lexsort((-epochs, _hashes(rows)))


def _hashes(rows: pa.Table) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = rows[KEY].to_numpy()
    return found


def _same(left: pa.Table, right: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows of two tables are equal. Nulls are equal, and so are NaNs."""
    same = np.ones(len(left), bool)
    for name in left.column_names:
        a, b = left[name], right[name]
        equal = pc.fill_null(pc.equal(a, b), False)
        equal = pc.or_(
            equal, pc.and_(pc.is_null(a, nan_is_null=True), pc.is_null(b, nan_is_null=True))
        )
        same &= equal.to_numpy()
    return same


def _values(rows: pa.Table, place: int, keys: Sequence[str]) -> tuple[str, ...]:
    return _texts([rows[each][int(place)] for each in keys])


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    """Return values in a form in which NaNs are equal, and zeros of either sign."""
    return tuple(repr(value if (value := each.as_py()) != 0 else 0) for each in values)
