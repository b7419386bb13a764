"""KeyTable: an operator's rows by key, as Parquet files, written and read by Spark tasks.

A file is a list of changes: rows, each with a weight and the time of its epoch. The table is their
sum: a row with total weight two is in the table twice, a row with total weight zero is not in it.
So files can be appended and merged in any order and any selection, with the same meaning.

Each epoch appends one file per subtask that has rows. Then the rows of the keys that it touched are
read: every subtask searches its own files for its own keys, and no row of state is shuffled. Keys
are compared by a hash. Two keys with the same hash are read together, which is slower but correct.

With a state TTL, a key expires if no epoch has touched it for that long. Merging drops the rows of
expired keys. If an expired key is touched again before that, the epoch's file gets an expiry
marker: a row without a weight, which invalidates all older rows of its key. A marker is correct
whether or not these rows still exist, so concurrent merges do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from resurgence.engine.tables.cache_reads import CacheReports
from resurgence.engine.tables.file_cache import sorted_rows
from resurgence.engine.tables.keyed_table import GROUP_OF_KEY, TIME, KeyedTable
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.sorted_rows import KEY, Keys, distinct_keys
from resurgence.engine.tables.state_writer import GROUP, Fill, NewFiles, Written, bit_set
from resurgence.faults import FaultAction
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, Generation
from resurgence.spark_tasks import ArrowFunction
from resurgence.state.key_groups import deal
from resurgence.state.records import StateFile
from resurgence.storage.access import StoreAccess, store_access

NEW = "__new"
"""The column that marks rows of the current epoch when they are read. It is not stored."""

_END_OF_TIME = 2**62


@dataclass(frozen=True)
class Side:
    """The rows of a join with this value in a column."""

    column: str
    value: int

    def of(self, rows: pa.RecordBatch, *, is_other: bool = False) -> pa.RecordBatch:
        """Return the rows of this side, or those of the others."""
        compare = pc.not_equal if is_other else pc.equal
        return rows.filter(compare(rows.column(self.column), self.value))


class KeyTable(KeyedTable):
    """Writes and reads changes by key. The columns are `KEY`, those of `columns`, `CHANGE` and
    `TIME`.
    """

    def __init__(
        self,
        *,
        url: str,
        folder: str,
        columns: tuple[StructField, ...],
        parallelism: int,
        ttl_micros: int | None = None,
    ) -> None:
        super().__init__(
            url=url,
            folder=folder,
            columns=(*columns, StructField(CHANGE, LongType())),
            parallelism=parallelism,
            ttl_micros=ttl_micros,
        )

    def write(
        self,
        rows: DataFrame,
        epoch: Epoch,
        generation: Generation,
        *,
        after: tuple[LiveFiles, int] | None = None,
        fault: FaultAction | None = None,
    ) -> Written:
        """Write rows that were `dealt` or `read` as files, in one Spark job. `after` has the live
        files and the time of an epoch that appends: its expired keys get expiry markers.
        """
        live, since = (None, None) if after is None else (after[0], self.since(after[1]))
        held = live.files if live is not None and since is not None else ()
        fill = _filling(store_access(self._url), held, since)
        return self._written(rows, fill, epoch, generation, fault)

    def read_touched(
        self,
        spark: SparkSession,
        live: LiveFiles,
        fresh: tuple[StateFile, ...],
        *,
        all_keys: bool = False,
    ) -> tuple[DataFrame, ...]:
        """Return all rows of the keys in the `fresh` files, whose own rows are marked by `NEW`: one
        DataFrame, in one partition, per subtask with such keys. With `all_keys`, include the rows
        of all other keys.
        """
        paths = {each.path for each in fresh}
        found = []
        dealt = enumerate(zip(live.subtasks, deal(fresh, self._parallelism), strict=True))
        for subtask, (slices, written) in dealt:
            held = tuple(each.file for each in slices if each.file.path not in paths)
            files = tuple(each.file for each in written)
            reading = _Reading(held, (*held, *files), self._ttl, files, all_keys=all_keys)
            if files or (all_keys and held):
                rows = self._rows(spark, reading, self._reports(spark))
                if all_keys and any(each.partial for each in slices):
                    rows = rows.where(live.is_owned(subtask, GROUP_OF_KEY))
                found.append(rows)
        return tuple(found)

    def read_matching(
        self,
        spark: SparkSession,
        live: LiveFiles,
        fresh: tuple[StateFile, ...],
        side: Side,
        near: int | None = None,
    ) -> tuple[DataFrame, ...]:
        """Return the rows of one side of a join that can be in a new pair: those in the `fresh`
        files, marked by `NEW`, and those whose key a fresh row of another side has. One DataFrame,
        in one partition, per subtask with fresh rows. With `near`, no files whose times are
        further than that from those of the fresh rows.
        """
        found = []
        dealt = zip(live.subtasks, deal(fresh, self._parallelism), strict=True)
        for slices, written in dealt:
            files = tuple(each.file for each in written)
            held = tuple(each.file for each in slices if _is_near(each.file, files, near))
            if files:
                reading = _Reading(held, (*held, *files), self._ttl, files, side=side)
                found.append(self._rows(spark, reading, self._reports(spark)))
        return tuple(found)

    def read(
        self, spark: SparkSession, live: LiveFiles, only: frozenset[str], time: int
    ) -> tuple[DataFrame, ...]:
        """Return the rows of some files, and the markers that other files still need, without keys
        that are expired at `time`: one DataFrame, in one partition, per subtask.
        """
        found = []
        for subtask, slices in enumerate(live.subtasks):
            chosen = tuple(each for each in slices if each.file.path in only)
            files = tuple(each.file for each in chosen)
            every = tuple(each.file for each in slices)
            rows = self._rows(spark, _Reading(files, every, self._ttl, since=self.since(time)))
            if any(each.partial for each in chosen):
                rows = rows.where(live.is_owned(subtask, GROUP_OF_KEY))
            found.append(rows)
        return tuple(found)

    def _rows(
        self, spark: SparkSession, reading: _Reading, reports: CacheReports | None = None
    ) -> DataFrame:
        schema = StructType([*self.schema.fields, StructField(NEW, BooleanType())])
        reader = _reader(store_access(self._url), reading)
        if reports is not None:
            reader = _counted(reader, reports)
        return spark.range(0, 1, 1, 1).mapInArrow(reader, schema)


def _counted(reader: ArrowFunction, reports: CacheReports) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reports.counting():
            yield from reader(batches)

    return read


def _is_near(file: StateFile, fresh: tuple[StateFile, ...], near: int | None) -> bool:
    """Return whether a file is not fresh itself, and may have rows of about the same time."""
    if not fresh or any(each.path == file.path for each in fresh):
        return False
    if near is None:
        return True
    first, last = min(each.time_start for each in fresh), max(each.time_end for each in fresh)
    return file.time_end >= first - near and file.time_start <= last + near


def _filling(access: StoreAccess, held: tuple[StateFile, ...], since: int | None) -> Fill:
    def fill(batches: Iterable[pa.RecordBatch], files: NewFiles) -> None:
        touched: list[pa.Array] = []
        schema: pa.Schema | None = None
        for batch in batches:
            files.add(batch)
            files.kept += batch.num_rows
            if since is not None:
                touched.append(pc.unique(batch.column(KEY)))
            schema = batch.drop_columns([GROUP]).schema
        if since is None or schema is None or files.newest is None:
            return
        groups = bit_set(files.groups)
        mine = tuple(each for each in held if each.key_groups & groups)
        expired = _expired_keys(access, mine, since, distinct_keys(touched))
        if len(expired):
            files.add_ungrouped(_expiry_markers(schema, expired, files.newest))

    return fill


def _expired_keys(
    access: StoreAccess, held: tuple[StateFile, ...], since: int, touched: Keys
) -> pa.Array:
    """Return the touched keys that have rows, all of them older than `since`."""
    if all(each.time_start >= since for each in held):
        return pa.array([], pa.int64())
    known, unexpired = [], []
    for file in held:
        for batch in _batches(access, file, touched):
            known.append(pc.unique(batch.column(KEY)))
            is_new = pc.greater_equal(batch.column(TIME), since)
            unexpired.append(pc.unique(batch.column(KEY).filter(is_new)))
    keys = pa.array(distinct_keys(known))
    return keys.filter(pc.invert(pc.is_in(keys, value_set=pa.array(distinct_keys(unexpired)))))


def _expiry_markers(schema: pa.Schema, keys: pa.Array, time: int) -> pa.RecordBatch:
    """Return rows that invalidate all older rows of these keys."""
    columns = [pa.nulls(len(keys), each.type) for each in schema]
    columns[schema.get_field_index(KEY)] = keys
    columns[schema.get_field_index(TIME)] = pa.repeat(pa.scalar(time, pa.int64()), len(keys))
    return pa.RecordBatch.from_arrays(columns, schema.names)


@dataclass(frozen=True)
class _Reading:
    """The input of one task: the valid rows of `held`, by the markers in all files of the subtask.
    With `fresh`, its rows, and of `held` only the rows of its keys, unless `all_keys` is set. With
    `since`, without the rows of expired keys, but with the markers that files outside of `held`
    need.
    """

    held: tuple[StateFile, ...]
    every: tuple[StateFile, ...]
    ttl: int | None
    fresh: tuple[StateFile, ...] | None = None
    since: int | None = None
    all_keys: bool = False
    side: Side | None = None
    """Of `held` only the rows of this side, for the keys of the other sides' fresh rows."""

    @property
    def may_have_expired(self) -> bool:
        """Whether a key can have expired: these files span more than the state TTL."""
        if self.ttl is None or not self.every:
            return False
        first = min(each.time_start for each in self.every)
        return max(each.time_end for each in self.every) - first > self.ttl

    @property
    def oldest_left(self) -> int:
        """The time of the oldest row in files outside of `held`."""
        paths = {each.path for each in self.held}
        left = (each.time_start for each in self.every if each.path not in paths)
        return min(left, default=_END_OF_TIME)


def _reader(access: StoreAccess, reading: _Reading) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        touched: Keys | None = None
        if reading.fresh is not None:
            fresh = [batch for file in reading.fresh for batch in _batches(access, file, None)]
            side = reading.side
            if side is not None:
                others = (side.of(batch, is_other=True) for batch in fresh)
                touched = distinct_keys([batch.column(KEY) for batch in others])
                fresh = [side.of(batch) for batch in fresh]
            elif not reading.all_keys:
                touched = distinct_keys([batch.column(KEY) for batch in fresh])
            for batch in fresh:
                yield _tagged(batch.filter(pc.is_valid(batch.column(CHANGE))), new=True)
            if touched is not None and not len(touched):
                return
        valid_from = _valid_from(access, reading, touched)
        since, unexpired = reading.since, None
        if since is not None and any(each.time_start < since for each in reading.held):
            unexpired = distinct_keys(
                [
                    pc.unique(batch.column(KEY).filter(pc.greater_equal(batch.column(TIME), since)))
                    for file in reading.every
                    if file.time_end >= since
                    for batch in _batches(access, file, None)
                ]
            )
        for file in reading.held:
            for batch in _batches(access, file, touched):
                chosen = batch.filter(_is_valid(batch, valid_from, reading))
                if reading.side is not None:
                    chosen = reading.side.of(chosen)
                if unexpired is not None:
                    chosen = chosen.filter(
                        pc.is_in(chosen.column(KEY), value_set=pa.array(unexpired))
                    )
                if chosen.num_rows:
                    yield _tagged(chosen, new=False)

    return read


def _valid_from(access: StoreAccess, reading: _Reading, touched: Keys | None) -> pa.Table:
    """Return, for keys that expired and were touched again, the time from which rows are valid."""
    found = [pa.table({KEY: pa.array([], pa.int64()), TIME: pa.array([], pa.int64())})]
    if reading.may_have_expired:
        for file in reading.every:
            for batch in _batches(access, file, touched):
                markers = batch.filter(pc.is_null(batch.column(CHANGE)))
                columns = [markers.column(KEY), markers.column(TIME)]
                found.append(pa.Table.from_arrays(columns, [KEY, TIME]))
    newest = pa.concat_tables(found).group_by(KEY).aggregate([(TIME, "max")])
    return newest.rename_columns([KEY, TIME]).combine_chunks()


def _is_valid(batch: pa.RecordBatch, valid_from: pa.Table, reading: _Reading) -> pa.Array:
    """Return which rows are valid, and which markers are needed."""
    is_row = pc.is_valid(batch.column(CHANGE))
    if reading.since is not None:
        is_needed = pc.greater(batch.column(TIME), reading.oldest_left)
        is_row = pc.or_(is_row, is_needed)
    if not valid_from.num_rows:
        return is_row
    place = pc.index_in(batch.column(KEY), value_set=valid_from.column(KEY))
    starts = pc.take(valid_from.column(TIME).combine_chunks(), place)
    is_expired = pc.less(batch.column(TIME), starts)
    return pc.and_(is_row, pc.invert(pc.fill_null(is_expired, False)))


def _batches(access: StoreAccess, file: StateFile, keys: Keys | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, for some keys or for all."""
    rows = sorted_rows(access, file)
    yield from rows.batches if keys is None else rows.find(keys)


def _tagged(batch: pa.RecordBatch, *, new: bool) -> pa.RecordBatch:
    marks = pa.repeat(pa.scalar(new), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, marks], [*batch.schema.names, NEW])
