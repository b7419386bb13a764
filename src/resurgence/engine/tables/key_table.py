"""KeyTable: an operator's rows by key, as Parquet files, written and read by Spark tasks.

A file is a list of changes: rows, each with a weight and the time of its epoch. The table is their
sum: a row whose weights come to two is there twice, one whose weights come to nothing is not there.
So files can be appended and merged in any order and any selection, and mean the same.

Each epoch appends one file per subtask that has rows. Then the rows of the keys that it touched are
read: every subtask looks for its own keys in its own files, and no row of state is shuffled. Keys
are compared by a hash. Two keys with one hash are read together, which costs time and is not wrong.

With a time to live, a key that no epoch has touched for longer is forgotten. Merging drops the rows
of such keys. Where one of them is touched again before that, the epoch's file gets a marker: a row
without a weight, which says that all older rows of its key are dead. A marker holds whether or not
these rows are still there, so it does not matter what is merged meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.state_writer import GROUP, Fill, NewFile, StateWriter, Written
from resurgence.faults import FaultAction
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, Generation
from resurgence.spark_tasks import ArrowFunction
from resurgence.state.key_groups import KEY_GROUPS, FileSlice, deal, shuffle_partitions
from resurgence.state.records import StateFile, TableCheckpoint, TableKind
from resurgence.storage.object_store import shared_store
from resurgence.storage.parquet import read_bins

KEY = "__key"
"""The column with the hash of a row's key: a whole number of 62 bits."""

TIME = "__time"
"""The column with the time of the epoch that changed the row, in microseconds."""

NEW = "__new"
"""The column that says whether a row that is read was just written. It is not stored."""

TOUCHED_AT = "touched_at"

_KEY_END = 2**62
_GROUP_OF_KEY = f"pmod(hash({KEY}), {KEY_GROUPS})"


class KeyTable:
    """Rows by key: how they are written and read. Which files there are is a LiveFiles. The columns are `KEY`, those of `columns`, `CHANGE` and `TIME`."""

    def __init__(
        self,
        *,
        url: str,
        folder: str,
        columns: tuple[StructField, ...],
        parallelism: int,
        ttl_micros: int | None = None,
    ) -> None:
        self._parallelism = parallelism
        self._ttl = ttl_micros
        self._url = url
        self._writer = StateWriter(url, folder)
        self.schema = StructType(
            [
                StructField(KEY, LongType()),
                *columns,
                StructField(CHANGE, LongType()),
                StructField(TIME, LongType()),
            ]
        )

    def since(self, time: int) -> int | None:
        """Keys that were last touched before this are forgotten."""
        return None if self._ttl is None else time - self._ttl

    def mergeable(self, live: LiveFiles, time: int) -> frozenset[str]:
        """The files worth merging: small ones, and those with rows that should have been forgotten
        long ago.
        """
        since = self.since(time)
        if since is None or self._ttl is None:
            return live.small_files()
        stale = {each.path for each in live.files if each.time_start < since - self._ttl}
        return live.small_files() | stale

    def load(
        self, checkpoint: TableCheckpoint, subtasks: tuple[tuple[FileSlice, ...], ...]
    ) -> LiveFiles:
        """The files of a checkpoint, as a load plan has dealt them to each subtask."""
        touched_at = checkpoint.values.get(TOUCHED_AT)
        return LiveFiles(subtasks, touched_at if isinstance(touched_at, int) else None)

    def checkpoint(self, live: LiveFiles) -> TableCheckpoint:
        """The table as it goes into the operator's metadata."""
        return TableCheckpoint(
            kind=TableKind.KEY,
            schema_text=self.schema.json(),
            files=live.files,
            values={} if live.touched_at is None else {TOUCHED_AT: live.touched_at},
        )

    def dealt(self, rows: DataFrame) -> DataFrame:
        """Rows shuffled by key, with one partition per subtask."""
        return self.gathered(self.shuffled(rows))

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """Rows shuffled by key, into partitions that Spark knows to hold whole keys."""
        return rows.repartition(shuffle_partitions(self._parallelism), KEY)

    def gathered(self, rows: DataFrame) -> DataFrame:
        """Rows that were `shuffled`, with one partition per subtask."""
        is_dealt = shuffle_partitions(self._parallelism) == self._parallelism
        return rows if is_dealt else rows.coalesce(self._parallelism)

    def write(
        self,
        rows: DataFrame,
        epoch: Epoch,
        generation: Generation,
        *,
        after: tuple[LiveFiles, int] | None = None,
        fault: FaultAction | None = None,
    ) -> Written:
        """Write rows that were `dealt` or `read` as files, one Spark job. With `after`, they are an
        epoch's, and follow on the files that are live at its time: those of their keys that have
        expired begin anew.
        """
        live, since = (None, None) if after is None else (after[0], self.since(after[1]))
        held = live.files if live is not None and since is not None else ()
        grouped = rows.selectExpr(
            *(f"`{each}`" for each in self.schema.names), f"{_GROUP_OF_KEY} AS {GROUP}"
        )
        fill = _filling(self._url, held, since)
        return self._writer.write(grouped, fill, TIME, epoch, generation, fault)

    def read_touched(
        self,
        spark: SparkSession,
        live: LiveFiles,
        fresh: tuple[StateFile, ...],
        *,
        all_keys: bool = False,
    ) -> tuple[DataFrame, ...]:
        """All rows of the keys in some files that were just written, these rows marked by `NEW`:
        one DataFrame per subtask that has such keys, in one partition. With `all_keys`, the rows of
        the others as well.
        """
        paths = {each.path for each in fresh}
        found = []
        dealt = enumerate(zip(live.subtasks, deal(fresh, self._parallelism), strict=True))
        for subtask, (slices, written) in dealt:
            held = tuple(each.file for each in slices if each.file.path not in paths)
            files = tuple(each.file for each in written)
            reading = _Reading(held, (*held, *files), self._ttl, files, all_keys=all_keys)
            if files or (all_keys and held):
                rows = self._rows(spark, reading)
                if all_keys and any(each.partial for each in slices):
                    rows = rows.where(live.is_owned(subtask, _GROUP_OF_KEY))
                found.append(rows)
        return tuple(found)

    def read(
        self, spark: SparkSession, live: LiveFiles, only: frozenset[str], time: int
    ) -> tuple[DataFrame, ...]:
        """The rows of some files, and the markers that others still need; not of keys that are
        forgotten at a time. One DataFrame per subtask, in one partition.
        """
        found = []
        for subtask, slices in enumerate(live.subtasks):
            chosen = tuple(each for each in slices if each.file.path in only)
            files = tuple(each.file for each in chosen)
            every = tuple(each.file for each in slices)
            rows = self._rows(spark, _Reading(files, every, self._ttl, since=self.since(time)))
            if any(each.partial for each in chosen):
                rows = rows.where(live.is_owned(subtask, _GROUP_OF_KEY))
            found.append(rows)
        return tuple(found)

    def _rows(self, spark: SparkSession, reading: _Reading) -> DataFrame:
        schema = StructType([*self.schema.fields, StructField(NEW, BooleanType())])
        return spark.range(0, 1, 1, 1).mapInArrow(_reader(self._url, reading), schema)


def _filling(url: str, held: tuple[StateFile, ...], since: int | None) -> Fill:
    def fill(batches: Iterable[pa.RecordBatch], file: NewFile) -> None:
        touched: list[pa.Array] = []
        schema: pa.Schema | None = None
        for batch in batches:
            file.add(batch)
            file.kept += batch.num_rows
            if since is not None:
                touched.append(pc.unique(batch.column(KEY)))
            schema = batch.drop_columns([GROUP]).schema
        if since is None or schema is None or not file.kept:
            return
        mine = tuple(each for each in held if each.key_groups & file.key_groups)
        forgotten = _forgotten(url, mine, since, _distinct(touched))
        if len(forgotten):
            file.add_ungrouped(_markers(schema, forgotten, max(file.bounds)))

    return fill


def _forgotten(url: str, held: tuple[StateFile, ...], since: int, touched: pa.Array) -> pa.Array:
    """Those of the touched keys that have rows, none of them newer than a bound."""
    if all(each.time_start >= since for each in held):
        return pa.array([], pa.int64())
    known, alive = [], []
    for file in held:
        for batch in _batches(url, file, touched):
            known.append(pc.unique(batch.column(KEY)))
            is_new = pc.greater_equal(batch.column(TIME), since)
            alive.append(pc.unique(batch.column(KEY).filter(is_new)))
    keys = _distinct(known)
    return keys.filter(pc.invert(pc.is_in(keys, value_set=_distinct(alive))))


def _markers(schema: pa.Schema, keys: pa.Array, time: int) -> pa.RecordBatch:
    """Rows that say: what is older of these keys is dead."""
    columns = [pa.nulls(len(keys), each.type) for each in schema]
    columns[schema.get_field_index(KEY)] = keys
    columns[schema.get_field_index(TIME)] = pa.repeat(pa.scalar(time, pa.int64()), len(keys))
    return pa.RecordBatch.from_arrays(columns, schema.names)


@dataclass(frozen=True)
class _Reading:
    """What one task reads: the rows of `held` that are not dead, as all files of the subtask have
    it. With `fresh`, its rows, and of `held` only the rows of its keys, unless `all_keys` is set.
    With `since`, also not the rows of forgotten keys, but the markers that files outside of `held`
    need.
    """

    held: tuple[StateFile, ...]
    every: tuple[StateFile, ...]
    ttl: int | None
    fresh: tuple[StateFile, ...] | None = None
    since: int | None = None
    all_keys: bool = False

    @property
    def may_have_dead(self) -> bool:
        """Some key can have been forgotten: these files span more than the time to live."""
        if self.ttl is None or not self.every:
            return False
        first = min(each.time_start for each in self.every)
        return max(each.time_end for each in self.every) - first > self.ttl

    @property
    def oldest_left(self) -> int:
        """The time of the first row that stays where it is."""
        paths = {each.path for each in self.held}
        left = (each.time_start for each in self.every if each.path not in paths)
        return min(left, default=_KEY_END)


def _reader(url: str, reading: _Reading) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        touched: pa.Array | None = None
        if reading.fresh is not None:
            fresh = [batch for file in reading.fresh for batch in _batches(url, file, None)]
            if not reading.all_keys:
                touched = _distinct([pc.unique(batch.column(KEY)) for batch in fresh])
            for batch in fresh:
                yield _tagged(batch.filter(pc.is_valid(batch.column(CHANGE))), new=True)
        born = _births(url, reading, touched)
        since, alive = reading.since, None
        if since is not None and any(each.time_start < since for each in reading.held):
            alive = _distinct(
                [
                    pc.unique(batch.column(KEY).filter(pc.greater_equal(batch.column(TIME), since)))
                    for file in reading.every
                    if file.time_end >= since
                    for batch in _batches(url, file, None)
                ]
            )
        for file in reading.held:
            for batch in _batches(url, file, touched):
                kept = batch.filter(_living(batch, born, reading))
                if alive is not None:
                    kept = kept.filter(pc.is_in(kept.column(KEY), value_set=alive))
                if kept.num_rows:
                    yield _tagged(kept, new=False)

    return read


def _births(url: str, reading: _Reading, touched: pa.Array | None) -> pa.Table:
    """Of the keys that were forgotten and touched again: from when on their rows count."""
    found = [pa.table({KEY: pa.array([], pa.int64()), TIME: pa.array([], pa.int64())})]
    if reading.may_have_dead:
        for file in reading.every:
            for batch in _batches(url, file, touched):
                markers = batch.filter(pc.is_null(batch.column(CHANGE)))
                columns = [markers.column(KEY), markers.column(TIME)]
                found.append(pa.Table.from_arrays(columns, [KEY, TIME]))
    newest = pa.concat_tables(found).group_by(KEY).aggregate([(TIME, "max")])
    return newest.rename_columns([KEY, TIME]).combine_chunks()


def _living(batch: pa.RecordBatch, born: pa.Table, reading: _Reading) -> pa.Array:
    """Which rows are not dead, and which markers are needed."""
    is_row = pc.is_valid(batch.column(CHANGE))
    if reading.since is not None:
        is_needed = pc.greater(batch.column(TIME), reading.oldest_left)
        is_row = pc.or_(is_row, is_needed)
    if not born.num_rows:
        return is_row
    place = pc.index_in(batch.column(KEY), value_set=born.column(KEY))
    is_dead = pc.less(batch.column(TIME), pc.take(born.column(TIME).combine_chunks(), place))
    return pc.and_(is_row, pc.invert(pc.fill_null(is_dead, False)))


def _batches(url: str, file: StateFile, keys: pa.Array | None) -> Iterator[pa.RecordBatch]:
    """The rows of a file; of some keys, or all."""
    start, end = 0, _KEY_END
    if keys is not None:
        bounds = pc.min_max(keys).as_py()
        start, end = bounds["min"], bounds["max"] + 1
    store = shared_store(url)
    for batch in read_bins(store, file.path, file.bytes, file.digest, KEY, start, end):
        chosen = batch
        if keys is not None:
            chosen = batch.filter(pc.is_in(batch.column(KEY), value_set=keys))
        if chosen.num_rows:
            yield chosen


def _distinct(parts: list[pa.Array]) -> pa.Array:
    """The distinct keys of some arrays."""
    return pc.unique(pa.chunked_array(parts, pa.int64()))


def _tagged(batch: pa.RecordBatch, *, new: bool) -> pa.RecordBatch:
    marks = pa.repeat(pa.scalar(new), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, marks], [*batch.schema.names, NEW])
