"""GroupTable: one row per group of an aggregation, as Parquet files, written and read by Spark tasks.

Each epoch writes the whole row of every group that it touches. Of the rows of a group the one of
the highest epoch is valid, so a row never depends on an older one, and files can be merged in any
selection. Nothing is summed when state is read or merged: a value is the bits that were written.

A task looks up the previous rows of its own groups, in its own files, and appends them as columns to
the rows that it has. No row of state is shuffled, and what a lookup reads depends on the groups of
the epoch, not on the size of the table.

With a state TTL, or a watermark behind which rows expire, a row is ignored when it has expired by
its own time. Merging drops such rows, so results do not depend on when files were merged.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from resurgence.engine.tables.file_cache import sorted_rows
from resurgence.engine.tables.keyed_table import GROUP_OF_KEY, TIME, KeyedTable
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.newest_rows import EPOCH, newest_of, newest_rows
from resurgence.engine.tables.sorted_rows import KEY, Keys, distinct_keys, keys_of
from resurgence.engine.tables.state_writer import GROUP, NewFiles, WriteThrough, Written
from resurgence.engine.tables.task_reports import TaskReports
from resurgence.faults import FaultAction
from resurgence.ids import Epoch, Generation
from resurgence.spark_plans.arrow_map import ArrowMap
from resurgence.spark_tasks import ArrowFunction
from resurgence.state.key_groups import deal, subtask_of
from resurgence.state.records import StateFile
from resurgence.storage.access import StoreAccess, store_access

HAD_ROW = "__had_row"
"""Whether a group had a row before the epoch."""

_Lookup: TypeAlias = Callable[[Iterable[pa.RecordBatch], int], Iterator[pa.RecordBatch]]

_PREVIOUS = "__previous_"
_ROWS_AT_ONCE = 200_000
_SLICE_ROWS = 1_000_000
"""About as many rows are merged at once."""
_KEY_END = 2**62
_NO_KEYS = np.empty(0, np.int64)


def previous(name: str) -> str:
    """Return the column with the previous value of another one."""
    return f"{_PREVIOUS}{name}"


class GroupTable(KeyedTable):
    """Writes and reads the rows of groups. The columns are `KEY`, the keys, the values, `EPOCH` and
    `TIME`.
    """

    def __init__(
        self,
        *,
        url: str,
        folder: str,
        keys: tuple[StructField, ...],
        values: tuple[StructField, ...],
        parallelism: int,
        ttl_micros: int | None = None,
    ) -> None:
        super().__init__(
            url=url,
            folder=folder,
            columns=(*keys, *values, StructField(EPOCH, LongType())),
            parallelism=parallelism,
            ttl_micros=ttl_micros,
        )
        self._keys = tuple(each.name for each in keys)
        self._previous = (
            StructField(HAD_ROW, BooleanType()),
            *(StructField(previous(each.name), each.dataType) for each in values),
        )
        self._values = tuple(each.name for each in values)
        self._changed = ArrowMap(("id",), StructType([*self.schema, *self._previous]))
        self._merged = ArrowMap(("id",), self.schema)
        self._looking_up: ArrowMap | None = None
        self._writing: ArrowMap | None = None
        """The steps of an epoch, whose columns are known from its first rows."""

    def with_previous(
        self, rows: DataFrame, live: LiveFiles, epoch: Epoch, time: int, valid_from: int | None
    ) -> DataFrame:
        """Return one row per group, `dealt`, with its epoch, its time and its previous values. The
        rows have `GROUP`; those that have `TIME` keep it.
        """
        held = tuple(tuple(each.file for each in slices) for slices in live.subtasks)
        lookup, parallelism = self._lookup(held, valid_from), self._parallelism
        reports = self._reports(rows.sparkSession)
        if self._looking_up is None:
            stamped = (EPOCH,) if TIME in rows.columns else (EPOCH, TIME)
            added = (*(StructField(each, LongType()) for each in stamped), *self._previous)
            self._looking_up = ArrowMap(rows.columns, _nullable([*rows.schema, *added]))
        stamps = {EPOCH: int(epoch)}
        if TIME not in self._looking_up.columns:
            stamps[TIME] = time

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    # In a job that does more, a task can have another number than its subtask.
                    subtask = subtask_of(batch.column(GROUP)[0].as_py(), parallelism)
                    rest = itertools.chain([batch], batches)
                    with reports.counting():
                        yield from lookup(_stamped(rest, stamps), subtask)

        return self._looking_up.of(rows, task)

    def changed(
        self,
        spark: SparkSession,
        live: LiveFiles,
        fresh: tuple[StateFile, ...],
        valid_from: int | None,
    ) -> DataFrame:
        """Return the rows of new files with their previous values: those in the live files."""
        access = store_access(self._url)
        paths = {each.path for each in fresh}
        held = tuple(
            tuple(each.file for each in slices if each.file.path not in paths)
            for slices in live.subtasks
        )
        lookup, reports = self._lookup(held, valid_from), self._reports(spark)
        dealt = tuple(
            tuple(each.file for each in slices) for slices in deal(fresh, self._parallelism)
        )

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # In a union with other rows, a task has another number than its subtask.
            for subtask in [each.as_py() for batch in batches for each in batch.column(0)]:
                opened = (sorted_rows(access, file) for file in dealt[subtask])
                with reports.counting():
                    yield from lookup((batch for rows in opened for batch in rows.batches), subtask)

        subtasks = spark.range(0, self._parallelism, 1, self._parallelism)
        return self._changed.of(subtasks, task)

    def write(
        self,
        rows: DataFrame,
        epoch: Epoch,
        generation: Generation,
        *,
        fault: FaultAction | None = None,
    ) -> Written:
        """Write rows, one partition per subtask, in one Spark job."""
        return self._written(rows, _fill, epoch, generation, fault)

    def write_through(
        self,
        rows: DataFrame,
        epoch: Epoch,
        generation: Generation,
        reports: TaskReports,
        *,
        fault: FaultAction | None = None,
    ) -> WriteThrough:
        """Write rows that have `GROUP`, and more columns, as a step of the job that reads them."""
        if self._writing is None:
            passed_on = [each for each in rows.schema if each.name != GROUP]
            self._writing = ArrowMap(rows.columns, _nullable(passed_on))
        ordered, stored = rows.sortWithinPartitions(KEY), self.schema.names
        return self._writer.write_through(
            ordered, self._writing, stored, TIME, epoch, generation, reports, fault
        )

    def merged(
        self, spark: SparkSession, live: LiveFiles, only: frozenset[str], valid_from: int | None
    ) -> DataFrame:
        """Return the newest rows of the groups in some files, to be written as their replacement."""
        parts = []
        for subtask, slices in enumerate(live.subtasks):
            chosen = [each for each in slices if each.file.path in only]
            merge = _Merge(tuple(each.file for each in chosen), self._keys, valid_from)
            reader = merge.reader(store_access(self._url))
            rows = self._merged.of(spark.range(0, 1, 1, 1), reader)
            if any(each.partial for each in chosen):
                rows = rows.where(live.is_owned(subtask, GROUP_OF_KEY))
            parts.append(rows)
        merged = parts[0]
        for each in parts[1:]:
            merged = merged.unionAll(each)
        return merged

    def _lookup(self, held: tuple[tuple[StateFile, ...], ...], valid_from: int | None) -> _Lookup:
        """Return a function that appends the previous values of a subtask's groups."""
        access, keys, values = store_access(self._url), self._keys, self._values

        def lookup(batches: Iterable[pa.RecordBatch], subtask: int) -> Iterator[pa.RecordBatch]:
            files = [each for each in held[subtask] if _may_be_valid(each, valid_from)]
            for groups in _gathered(batches):
                found = _found(access, files, distinct_keys(groups[KEY].chunks), valid_from)
                yield from _with_previous(groups, found, keys, values).to_batches()

        return lookup


def _nullable(fields: Sequence[StructField]) -> StructType:
    """Return fields that may be null, as they can be in another epoch: one with replayed rows."""
    return StructType([StructField(each.name, each.dataType) for each in fields])


def _fill(batches: Iterable[pa.RecordBatch], files: NewFiles) -> None:
    for batch in batches:
        files.add(batch)
        files.kept += batch.num_rows


def _stamped(batches: Iterable[pa.RecordBatch], stamps: dict[str, int]) -> Iterator[pa.RecordBatch]:
    """Append constant columns. As literals of Spark they would be compiled in every epoch."""
    for batch in batches:
        for name, value in stamps.items():
            column = pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows)
            batch = batch.append_column(name, column)
        yield batch


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches as larger tables."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _may_be_valid(file: StateFile, valid_from: int | None) -> bool:
    return valid_from is None or file.time_end >= valid_from


def _found(
    access: StoreAccess, files: Sequence[StateFile], wanted: Keys, valid_from: int | None
) -> pa.Table | None:
    """Return the valid rows of some keys in some files; None if there are none."""
    found = [
        batch
        for file in files
        for batch in _valid(sorted_rows(access, file).find(wanted), valid_from)
    ]
    return pa.Table.from_batches(found) if found else None


def _valid(batches: Iterable[pa.RecordBatch], valid_from: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if valid_from is not None:
            batch = batch.filter(pc.greater_equal(batch.column(TIME), valid_from))
        if batch.num_rows:
            yield batch


def _with_previous(
    groups: pa.Table, found: pa.Table | None, keys: Sequence[str], values: Sequence[str]
) -> pa.Table:
    """Append `HAD_ROW` and the previous values to groups."""
    if found is None:
        places = pa.nulls(len(groups), pa.int64())
        known = pa.table({name: pa.nulls(len(groups), groups[name].type) for name in values})
    else:
        places = newest_of(groups, found, keys)
        known = found.select(values).take(places)
    result = groups.append_column(HAD_ROW, pc.is_valid(places))
    for name in values:
        result = result.append_column(previous(name), known[name])
    return result


@dataclass(frozen=True)
class _Merge:
    """Merges the files of one subtask, in slices of the keys."""

    files: tuple[StateFile, ...]
    keys: tuple[str, ...]
    valid_from: int | None

    def reader(self, access: StoreAccess) -> ArrowFunction:
        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            opened = [
                sorted_rows(access, each)
                for each in self.files
                if _may_be_valid(each, self.valid_from)
            ]
            for start, end in _slices([keys_of(b) for rows in opened for b in rows.batches]):
                parts = [
                    batch
                    for rows in opened
                    for batch in _valid(rows.between(start, end), self.valid_from)
                ]
                if parts:
                    yield from newest_rows(pa.Table.from_batches(parts), self.keys).to_batches()

        return read


def _slices(keys: Sequence[Keys]) -> Iterator[tuple[int, int]]:
    """Yield ranges of keys that have about `_SLICE_ROWS` rows together."""
    total = sum(map(len, keys))
    samples = np.sort(
        np.concatenate([each[:: max(1, total // 10_000)] for each in (*keys, _NO_KEYS)])
    )
    count = max(1, -(-total // _SLICE_ROWS))
    bounds = [int(samples[len(samples) * each // count]) for each in range(1, count)]
    edges = [0, *sorted(set(bounds) - {0}), _KEY_END]
    yield from itertools.pairwise(edges)
