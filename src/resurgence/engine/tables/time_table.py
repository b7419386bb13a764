"""TimeTable: an operator's rows in event-time bins, as Parquet files, written and read by Spark
tasks.

Append-only. Each epoch appends one file per subtask that has rows; a bin is read when the watermark
passes it, and a file is dropped when its last bin has been. Which rows a subtask holds is fixed by
key groups.
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
    NewFile,
    StateWriter,
    Written,
    nullable,
)
from resurgence.faults import FaultAction
from resurgence.ids import Epoch, Generation
from resurgence.spark_tasks import ArrowFunction
from resurgence.state.key_groups import KEY_GROUPS, FileSlice, shuffle_partitions
from resurgence.state.records import StateFile, TableCheckpoint, TableKind
from resurgence.storage.object_store import shared_store
from resurgence.storage.parquet import read_bins

BIN = "bin"
"""The column with a row's bin: the start of its window, in microseconds."""

ROWS = "__rows"
"""The column that says how many rows of the input a row stands for. It is not stored."""


@dataclass(frozen=True)
class SubtaskRows:
    """What one subtask holds of some bins."""

    rows: DataFrame
    """In one partition: Spark knows that it needs no shuffle to be grouped."""
    unique: bool
    """No two rows have the same bin and keys: they come from one file."""


class TimeTable:
    """Rows in bins: how they are written and read. Which files there are is a LiveFiles."""

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

    def checkpoint(self, live: LiveFiles) -> TableCheckpoint:
        """The table as it goes into the operator's metadata."""
        return TableCheckpoint(
            kind=TableKind.TIME, schema_text=self._schema.json(), files=live.files
        )

    def write(
        self,
        rows: DataFrame,
        epoch: Epoch,
        generation: Generation,
        *,
        open_from: int | None = None,
        partly_late_before: int | None = None,
        fault: FaultAction | None = None,
    ) -> Written:
        """Write rows as files, one Spark job.

        `rows` come out of a shuffle by the table's keys, into the partitions that `key_groups`
        prescribes. With `open_from`, rows of earlier bins are left out, and rows of the input are
        counted by `ROWS`; those in bins before `partly_late_before` once more. The tasks do that: a
        bound in the plan would be new code for Spark to compile in every epoch, and an observed
        count takes it out of Spark's generated loops.
        """
        grouped = rows.selectExpr("*", f"{self._group} AS {GROUP}")
        fill = _filling(open_from, open_from if partly_late_before is None else partly_late_before)
        return self._writer.write(grouped, fill, BIN, epoch, generation, fault)

    def dealt(self, shuffled: DataFrame) -> DataFrame:
        """Rows that were shuffled by the table's keys, with one partition per subtask."""
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
        """The rows in the bins [start, end), per subtask; of some files, or of all."""
        read = []
        for subtask, slices in enumerate(live.subtasks):
            chosen = tuple(
                each
                for each in _overlapping(slices, start, end)
                if only is None or each.file.path in only
            )
            files = tuple(each.file for each in chosen)
            task = _reader(self._url, files, start, end)
            rows = spark.range(0, 1, 1, 1).mapInArrow(task, self._schema)
            if any(each.partial for each in chosen):
                rows = rows.where(live.is_owned(subtask, self._group))
            read.append(SubtaskRows(rows, unique=len(chosen) <= 1))
        return tuple(read)


def _overlapping(slices: tuple[FileSlice, ...], start: int, end: int) -> tuple[FileSlice, ...]:
    """The files that may have rows in the bins [start, end)."""
    return tuple(
        each for each in slices if each.file.time_start < end and each.file.time_end >= start
    )


def _filling(open_from: int | None, partly_late_before: int | None) -> Fill:
    def fill(batches: Iterable[pa.RecordBatch], file: NewFile) -> None:
        for batch in batches:
            if open_from is None:
                file.add(batch)
            else:
                in_time, kept, late = _without_late(batch, open_from)
                file.kept, file.late = file.kept + kept, file.late + late
                if partly_late_before is not None and partly_late_before > open_from:
                    file.partly_late += _rows_before(batch, partly_late_before) - late
                file.add(in_time)

    return fill


def _without_late(batch: pa.RecordBatch, open_from: int) -> tuple[pa.RecordBatch, int, int]:
    """A batch without its bins before `open_from`; how many rows of the input it stands for, and
    how many those that are left out.
    """
    stood_for = batch.column(ROWS)
    total = pc.sum(stood_for).as_py() or 0
    rest = batch.drop_columns([ROWS])
    is_late = pc.less(batch.column(BIN), open_from)
    if not pc.any(is_late).as_py():
        return rest, total, 0
    late = pc.sum(stood_for.filter(is_late)).as_py()
    return rest.filter(pc.invert(is_late)), total - late, late


def _rows_before(batch: pa.RecordBatch, end: int) -> int:
    """How many rows of the input the bins before an instant stand for."""
    passed = batch.column(ROWS).filter(pc.less(batch.column(BIN), end))
    return pc.sum(passed).as_py() or 0


def _reader(url: str, files: tuple[StateFile, ...], start: int, end: int) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        for each in files:
            found = read_bins(
                shared_store(url), each.path, each.bytes, each.digest, BIN, start, end
            )
            for batch in found:
                yield nullable(batch)

    return read
