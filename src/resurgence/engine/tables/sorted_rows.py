"""Rows of one state file, sorted by the hash of their key, and the search for keys in them.

Rows are in batches, each sorted by itself. A search is binary, so it touches few pages of rows that
are mapped into memory. It knows nothing about files; `file_cache` provides the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

KEY = "__key"
"""The column with the hash of a row's key: a 62-bit integer."""

Keys: TypeAlias = npt.NDArray[np.int64]

_DENSE = 8
"""If at least one of so many rows may be wanted, all rows are compared."""


def keys_of(rows: pa.RecordBatch) -> Keys:
    """Return the keys of rows, without a copy."""
    found: Keys = rows.column(KEY).to_numpy(zero_copy_only=True)
    return found


def by_key(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in the order of their keys. Files are written in that order, but for a few rows
    at the end of some.
    """
    keys = keys_of(rows)
    if bool(np.all(keys[:-1] <= keys[1:])):
        return rows
    return rows.take(pa.array(np.argsort(keys, kind="stable")))


@dataclass(frozen=True)
class SortedRows:
    """The rows of a file, in batches that are sorted by key."""

    batches: Sequence[pa.RecordBatch]

    def find(self, wanted: Keys) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some keys, which are distinct and in order."""
        for batch in self.batches:
            places = _places(keys_of(batch), wanted)
            if len(places):
                yield batch.take(pa.array(places))

    def between(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with keys in [start, end), without a copy."""
        for batch in self.batches:
            first, last = np.searchsorted(keys_of(batch), [start, end])
            if first < last:
                yield batch.slice(first, last - first)


def _places(keys: Keys, wanted: Keys) -> npt.NDArray[np.int64]:
    """Return the places of rows with wanted keys; both arrays are sorted."""
    if not len(keys):
        return np.empty(0, np.int64)
    near = wanted[slice(*np.searchsorted(wanted, [keys[0], keys[-1] + 1]))]
    if len(near) * _DENSE >= len(keys):
        return np.flatnonzero(np.isin(keys, near, assume_unique=False))
    starts = np.searchsorted(keys, near, "left")
    counts = np.searchsorted(keys, near, "right") - starts
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def distinct_keys(parts: Sequence[pa.Array]) -> Keys:
    """Return the distinct keys of some arrays, in order."""
    found: Keys = np.unique(pc.unique(pa.chunked_array(parts, pa.int64())).to_numpy())
    return found
