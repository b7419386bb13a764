"""TimeTable: an operator's rows in event-time bins, as Parquet files, written and read by Spark
tasks.

Append-only. Each epoch appends one file per subtask that has rows. A bin is read when the watermark
passes it, and a file is dropped when its last bin has been passed. Key groups determine which rows
belong to a subtask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.state_writer import (
    GROUP,
    Fill,
    NewFiles,
    StateWriter,
    Written,
    nullable,
)
from resurgence.faults import FaultAction
from resurgence.ids import Epoch, Generation
from resurgence.spark_plans.arrow_map import ArrowMap
from resurgence.spark_plans.projection import Projection
from resurgence.spark_tasks import ArrowFunction
from resurgence.state.key_groups import KEY_GROUPS, FileSlice, shuffle_partitions
from resurgence.state.records import StateFile, TableCheckpoint, TableKind
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import task_store
from resurgence.storage.parquet import read_bins

BIN = "bin"
"""The column with a row's bin: the start of its window, in microseconds."""

ROWS = "__rows"
"""The column with the number of input rows that a row aggregates. It is not stored."""


@dataclass(frozen=True)
class SubtaskRows:
    """The rows of one subtask in some bins."""

    rows: DataFrame
    """In one partition, so that Spark groups it without a shuffle."""
    unique: bool
    """They come from one file. Unless rows were moved, no two have the same bin and keys."""


@dataclass(frozen=True)
class Admission:
    """Which new rows a table admits, by their bins."""

    late_before: int
    """Rows of earlier bins are late, and dropped."""
    partly_late_before: int
    """Rows of earlier bins that are not late are late for some of their windows."""
    open_from: int
    """Rows of earlier bins that are not late are moved to this one."""


class TimeTable:
    """Writes and reads rows in bins. LiveFiles owns the list of files."""

    def __init__(
        self, *, url: str, folder: str, schema: StructType, keys: tuple[str, ...], parallelism: int
    ) -> None:
        """`keys` are the columns that rows are shuffled by before they are written."""
        self._parallelism = parallelism
        self._url = url
        self._writer = StateWriter(url, folder)
        self._schema = schema
        # Rows without keys are all in the first group.
        self._group = f"pmod(hash({', '.join(keys)}), {KEY_GROUPS})" if keys else "0"
        self._grouped = Projection("*", f"{self._group} AS {GROUP}")
        self._rows = ArrowMap(("id",), schema)

    def checkpoint(self, live: LiveFiles) -> TableCheckpoint:
        """Return the table's part of the operator's metadata."""
        return TableCheckpoint(
            kind=TableKind.TIME, schema_text=self._schema.json(), files=live.files
        )

    def write(
        self,
        rows: DataFrame,
        epoch: Epoch,
        generation: Generation,
        *,
        admission: Admission | None = None,
        fault: FaultAction | None = None,
    ) -> Written:
        """Write rows as files, in one Spark job.

        `rows` were shuffled by the table's keys, into the partitions that `key_groups` prescribes.
        With an admission, late rows are dropped, and input rows are counted by `ROWS`, their last
        column. The tasks do that: Spark would compile a bound in the plan anew in every epoch, and
        would compute an observed count outside of its generated loops.
        """
        columns = [*self._schema.names, *([] if admission is None else [ROWS])]
        fill = _filling(admission)
        return self._writer.write(
            self._grouped.of(rows), columns, fill, BIN, epoch, generation, fault
        )

    def dealt(self, shuffled: DataFrame) -> DataFrame:
        """Merge rows that were shuffled by the table's keys into one partition per subtask."""
        if shuffle_partitions(self._parallelism) == self._parallelism:
            return shuffled
        return shuffled.coalesce(self._parallelism)

    def read(
        self,
        spark: SparkSession,
        live: LiveFiles,
        start: int,
        end: int,
        only: frozenset[str] | None = None,
    ) -> tuple[SubtaskRows, ...]:
        """Return the rows in the bins [start, end) per subtask, from some files or from all."""
        read = []
        access = store_access(self._url)
        for subtask, slices in enumerate(live.subtasks):
            chosen = tuple(
                each
                for each in _overlapping(slices, start, end)
                if only is None or each.file.path in only
            )
            files = tuple(each.file for each in chosen)
            task = _reader(access, files, start, end)
            rows = self._rows.of(spark.range(0, 1, 1, 1), task)
            if any(each.partial for each in chosen):
                rows = rows.where(live.is_owned(subtask, self._group))
            read.append(SubtaskRows(rows, unique=len(chosen) <= 1))
        return tuple(read)


def _overlapping(slices: tuple[FileSlice, ...], start: int, end: int) -> tuple[FileSlice, ...]:
    """Return the files that may have rows in the bins [start, end)."""
    return tuple(
        each for each in slices if each.file.time_start < end and each.file.time_end >= start
    )


def _filling(admission: Admission | None) -> Fill:
    def fill(batches: Iterable[pa.RecordBatch], files: NewFiles) -> None:
        for batch in batches:
            if admission is None:
                files.add(batch)
                continue
            total, late = pc.sum(batch.column(ROWS)).as_py() or 0, 0
            admitted = batch.drop_columns([ROWS])
            is_late = pc.less(batch.column(BIN), admission.late_before)
            if pc.any(is_late).as_py():
                late = _rows_before(batch, admission.late_before)
                admitted = admitted.filter(pc.invert(is_late))
            files.kept, files.late = files.kept + total - late, files.late + late
            if admission.partly_late_before > admission.late_before:
                files.partly_late += _rows_before(batch, admission.partly_late_before) - late
            if admission.open_from > admission.late_before:
                admitted = _moved(admitted, admission.open_from)
            files.add(admitted)

    return fill


def _moved(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return a batch with the bins before `first` replaced by it."""
    bins = pc.max_element_wise(batch.column(BIN), first)
    return batch.set_column(batch.schema.get_field_index(BIN), BIN, bins)


def _rows_before(batch: pa.RecordBatch, end: int) -> int:
    """Return the number of input rows in the bins before `end`."""
    passed = batch.column(ROWS).filter(pc.less(batch.column(BIN), end))
    return pc.sum(passed).as_py() or 0


def _reader(
    access: StoreAccess, files: tuple[StateFile, ...], start: int, end: int
) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        for each in files:
            found = read_bins(
                task_store(access), each.path, each.bytes, each.digest, BIN, start, end
            )
            for batch in found:
                yield nullable(batch)

    return read
