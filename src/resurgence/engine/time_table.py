"""TimeTable: an operator's rows in event-time bins, as Parquet files, written and read by Spark
tasks.

Append-only. Each epoch appends one file per subtask that has rows; a bin is read when the watermark
passes it, and a file is dropped when its last bin has been. Which rows a subtask holds is fixed by
key groups.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from resurgence.connectors.tasks import ArrowFunction, current_subtask, naming_subtask
from resurgence.ids import Epoch, Generation
from resurgence.state.key_groups import (
    KEY_GROUPS,
    FileSlice,
    deal,
    owned_groups,
    shuffle_partitions,
)
from resurgence.state.records import StateFile, TableCheckpoint, TableKind
from resurgence.storage.object_store import shared_store
from resurgence.storage.parquet import ParquetEncoder, create_new, read_bins, time_bounds
from resurgence.testing.faults import FaultAction, FaultPoint, strike

BIN = "bin"
"""The column with a row's bin: the start of its window, in microseconds."""

GROUP = "__key_group"

_WRITTEN = StructType(
    [
        StructField("path", StringType()),
        StructField("subtask", IntegerType()),
        StructField("key_groups", StringType()),
        *(StructField(name, LongType()) for name in ("rows", "bytes", "time_start", "time_end")),
    ]
)


@dataclass(frozen=True)
class PartialFault:
    """A fault to strike inside the first task, after its file is written."""

    action: FaultAction
    epoch: int
    worker_pid: int


class TimeTable:
    """The live files of one table. Changes of the list of files become durable with the next
    checkpoint.
    """

    def __init__(
        self, *, url: str, folder: str, schema: StructType, keys: tuple[str, ...], parallelism: int
    ) -> None:
        self._url = url
        self._folder = folder
        self._schema = schema
        self._group = f"pmod(hash({', '.join((BIN, *keys))}), {KEY_GROUPS})"
        self._parallelism = parallelism
        self.files: tuple[StateFile, ...] = ()

    def checkpoint(self) -> TableCheckpoint:
        """The table as it goes into the operator's metadata."""
        return TableCheckpoint(
            kind=TableKind.TIME, schema_text=self._schema.json(), files=self.files
        )

    def write(
        self,
        rows: DataFrame,
        epoch: Epoch,
        generation: Generation,
        fault: FaultAction | None = None,
    ) -> tuple[StateFile, ...]:
        """Write rows as files, one Spark job. They are not part of the table until they are put
        into `files`.

        `rows` come out of a shuffle by (bin, keys), into the partitions that `key_groups`
        prescribes.
        """
        planned = PartialFault(fault, epoch, os.getpid()) if fault else None
        task = _writer(self._url, f"{self._folder}/{epoch}-{generation}", planned)
        grouped = rows.selectExpr("*", f"{self._group} AS {GROUP}")
        written = grouped.mapInArrow(task, _WRITTEN).collect()
        return tuple(
            StateFile(
                path=row.path,
                subtask=row.subtask,
                epoch=epoch,
                rows=row.rows,
                bytes=row.bytes,
                key_groups=int(row.key_groups, 16),
                time_start=row.time_start,
                time_end=row.time_end,
            )
            for row in sorted(written, key=lambda row: int(row.subtask))
        )

    def dealt(self, shuffled: DataFrame) -> DataFrame:
        """Rows that were shuffled by (bin, keys), with one partition per subtask."""
        if shuffle_partitions(self._parallelism) == self._parallelism:
            return shuffled
        return shuffled.coalesce(self._parallelism)

    def overlapping(self, start: int, end: int) -> tuple[StateFile, ...]:
        """The files that may have rows in the bins [start, end)."""
        return tuple(
            each for each in self.files if each.time_start < end and each.time_end >= start
        )

    def read(self, spark: SparkSession, start: int, end: int) -> tuple[DataFrame, ...]:
        """The rows in the bins [start, end), one DataFrame of one partition per subtask: the
        files that hold its keys. Spark knows that a single partition needs no shuffle to be
        grouped.
        """
        dealt = deal(self.overlapping(start, end), self._parallelism)
        return tuple(
            self._read_subtask(spark, subtask, slices, start, end)
            for subtask, slices in enumerate(dealt)
        )

    def _read_subtask(
        self,
        spark: SparkSession,
        subtask: int,
        slices: tuple[FileSlice, ...],
        start: int,
        end: int,
    ) -> DataFrame:
        files = tuple((each.file.path, each.file.bytes) for each in slices)
        one_task = spark.range(0, 1, 1, 1)
        task = _reader(self._url, files, start, end, subtask)
        rows = one_task.mapInArrow(task, self._schema)
        if not any(each.partial for each in slices):
            return rows
        owned = owned_groups(subtask, self._parallelism)
        signed = owned - 2**KEY_GROUPS if owned >= 2 ** (KEY_GROUPS - 1) else owned
        return rows.where(f"shiftright({signed}L, {self._group}) & 1 = 1")

    def drop_before(self, bound: int) -> None:
        """Forget the files whose bins all lie before a bound."""
        self.files = tuple(each for each in self.files if each.time_end >= bound)

    def fullest_subtask(self) -> int:
        """How many live files the subtask with the most of them has."""
        return max((len(slices) for slices in deal(self.files, self._parallelism)), default=0)


def _writer(url: str, prefix: str, fault: PartialFault | None) -> ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        subtask = current_subtask()
        encoder = ParquetEncoder((BIN,))
        bounds: list[int] = []
        groups: set[int] = set()
        for batch in batches:
            if batch.num_rows:
                groups.update(pc.unique(batch.column(GROUP)).to_pylist())
                encoder.add(batch.drop_columns([GROUP]))
                bounds.extend(time_bounds(batch, BIN))
        encoded = encoder.finish()
        if encoded is not None:
            path = f"{prefix}-{subtask}-{uuid.uuid4().hex[:12]}.parquet"
            create_new(shared_store(url), path, encoded.data)
        if fault is not None and subtask == 0:
            strike(fault.action, FaultPoint.STATE_PARTIAL, fault.epoch, fault.worker_pid)
        if encoded is not None:
            row = {
                "path": [path],
                "subtask": pa.array([subtask], pa.int32()),
                "key_groups": [f"{sum(1 << group for group in groups):016x}"],
                "rows": [encoded.rows],
                "bytes": [len(encoded.data)],
                "time_start": [min(bounds)],
                "time_end": [max(bounds)],
            }
            yield pa.RecordBatch.from_pydict(row)

    return naming_subtask(write)


def _reader(
    url: str, files: tuple[tuple[str, int], ...], start: int, end: int, subtask: int
) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            for path, size in files:
                for batch in read_bins(shared_store(url), path, size, BIN, start, end):
                    # Files of different ages agree in names and types, not in what they say of
                    # nulls.
                    yield pa.RecordBatch.from_arrays(batch.columns, batch.schema.names)
        except Exception as error:
            error.add_note(f"in subtask {subtask}")
            raise

    return read
