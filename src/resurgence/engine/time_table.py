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

from resurgence.connectors.tasks import ArrowFunction, current_subtask
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

ROWS = "__rows"
"""The column that says how many rows of the input a row stands for. It is not stored."""

GROUP = "__key_group"

_WRITTEN = StructType(
    [
        StructField("path", StringType()),
        StructField("subtask", IntegerType()),
        StructField("key_groups", StringType()),
        StructField("digest", StringType()),
        *(
            StructField(name, LongType())
            for name in ("rows", "bytes", "time_start", "time_end", "kept", "late")
        ),
    ]
)


@dataclass(frozen=True)
class PartialFault:
    """A fault to strike inside the first task, after its file is written."""

    action: FaultAction
    epoch: int
    worker_pid: int


@dataclass(frozen=True)
class Written:
    """What one job wrote; of how many rows of the input, and how many came too late for it."""

    files: tuple[StateFile, ...]
    kept_rows: int
    late_rows: int

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files)


@dataclass(frozen=True)
class SubtaskRows:
    """What one subtask holds of some bins."""

    rows: DataFrame
    """In one partition: Spark knows that it needs no shuffle to be grouped."""
    unique: bool
    """No two rows have the same bin and keys: they come from one file."""


class TimeTable:
    """The live files of one table, and which subtask reads them. Changes become durable with the
    next checkpoint.
    """

    def __init__(
        self, *, url: str, folder: str, schema: StructType, keys: tuple[str, ...], parallelism: int
    ) -> None:
        """`keys` are the columns that rows are shuffled by before they are written."""
        self._url = url
        self._folder = folder
        self._schema = schema
        # Rows without keys are all in the first group.
        self._group = f"pmod(hash({', '.join(keys)}), {KEY_GROUPS})" if keys else "0"
        self._parallelism = parallelism
        self._subtasks: tuple[tuple[FileSlice, ...], ...] = ((),) * parallelism

    @property
    def files(self) -> tuple[StateFile, ...]:
        """The live files, oldest first."""
        distinct = {each.file.path: each.file for slices in self._subtasks for each in slices}
        return tuple(sorted(distinct.values(), key=lambda each: (each.epoch, each.path)))

    def load(self, subtasks: tuple[tuple[FileSlice, ...], ...]) -> None:
        """Take up the files that a load plan has dealt to each subtask."""
        self._subtasks = subtasks

    def append(self, files: tuple[StateFile, ...]) -> None:
        """Make files part of the table."""
        added = deal(files, self._parallelism)
        self._subtasks = tuple(held + new for held, new in zip(self._subtasks, added, strict=True))

    def exchange(self, replaced: frozenset[str], files: tuple[StateFile, ...]) -> None:
        """Put files that hold the same rows in the place of others."""
        self._subtasks = tuple(
            tuple(each for each in slices if each.file.path not in replaced)
            for slices in self._subtasks
        )
        self.append(files)

    def small_files(self) -> frozenset[str]:
        """The files worth merging, as paths: all but those that are larger than what all smaller
        ones would come to. So a row is rewritten about as often as its table doubles.
        """
        by_size = sorted(self.files, key=lambda each: each.bytes)
        while by_size and by_size[-1].bytes * self._parallelism > sum(
            each.bytes for each in by_size[:-1]
        ):
            by_size.pop()
        return frozenset(each.path for each in by_size)

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
        *,
        open_from: int | None = None,
        fault: FaultAction | None = None,
    ) -> Written:
        """Write rows as files, one Spark job. They are not part of the table until they are
        appended to it.

        `rows` come out of a shuffle by the table's keys, into the partitions that `key_groups`
        prescribes. With `open_from`, rows of earlier bins are left out, and rows of the input are
        counted by `ROWS`. The tasks do that: a bound in the plan would be new code for Spark to compile in
        every epoch, and an observed count takes it out of Spark's generated loops.
        """
        planned = PartialFault(fault, epoch, os.getpid()) if fault else None
        task = _writer(self._url, f"{self._folder}/{epoch}-{generation}", open_from, planned)
        grouped = rows.selectExpr("*", f"{self._group} AS {GROUP}")
        written = grouped.mapInArrow(task, _WRITTEN).collect()
        files = tuple(
            StateFile(
                path=row.path,
                subtask=row.subtask,
                epoch=epoch,
                rows=row.rows,
                bytes=row.bytes,
                key_groups=int(row.key_groups, 16),
                time_start=row.time_start,
                time_end=row.time_end,
                digest=row.digest,
            )
            for row in sorted(written, key=lambda row: int(row.subtask))
            if row.path is not None
        )
        kept, late = (sum(int(row[each]) for row in written) for each in ("kept", "late"))
        return Written(files, kept, late)

    def dealt(self, shuffled: DataFrame) -> DataFrame:
        """Rows that were shuffled by the table's keys, with one partition per subtask."""
        if shuffle_partitions(self._parallelism) == self._parallelism:
            return shuffled
        return shuffled.coalesce(self._parallelism)

    def read(
        self, spark: SparkSession, start: int, end: int, only: frozenset[str] | None = None
    ) -> tuple[SubtaskRows, ...]:
        """The rows in the bins [start, end), per subtask; of some files, or of all."""
        return tuple(
            self._read_subtask(
                spark,
                subtask,
                tuple(
                    each
                    for each in _overlapping(slices, start, end)
                    if only is None or each.file.path in only
                ),
                start,
                end,
            )
            for subtask, slices in enumerate(self._subtasks)
        )

    def _read_subtask(
        self,
        spark: SparkSession,
        subtask: int,
        slices: tuple[FileSlice, ...],
        start: int,
        end: int,
    ) -> SubtaskRows:
        files = tuple(each.file for each in slices)
        one_task = spark.range(0, 1, 1, 1)
        task = _reader(self._url, files, start, end)
        rows = one_task.mapInArrow(task, self._schema)
        if any(each.partial for each in slices):
            owned = owned_groups(subtask, self._parallelism)
            signed = owned - 2**KEY_GROUPS if owned >= 2 ** (KEY_GROUPS - 1) else owned
            rows = rows.where(f"shiftright({signed}L, {self._group}) & 1 = 1")
        return SubtaskRows(rows, unique=len(slices) <= 1)

    def drop_before(self, bound: int) -> None:
        """Forget the files whose bins all lie before a bound."""
        self._subtasks = tuple(
            tuple(each for each in slices if each.file.time_end >= bound)
            for slices in self._subtasks
        )

    def fullest_subtask(self) -> int:
        """How many live files the subtask with the most of them has."""
        return max(len(slices) for slices in self._subtasks)


def _overlapping(slices: tuple[FileSlice, ...], start: int, end: int) -> tuple[FileSlice, ...]:
    """The files that may have rows in the bins [start, end)."""
    return tuple(
        each for each in slices if each.file.time_start < end and each.file.time_end >= start
    )


def _writer(
    url: str, prefix: str, open_from: int | None, fault: PartialFault | None
) -> ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        subtask = current_subtask()
        encoder = ParquetEncoder((BIN,))
        kept = late = 0
        bounds: list[int] = []
        groups: set[int] = set()
        for given in batches:
            batch = given
            if open_from is not None:
                batch, kept_here, late_here = _without_late(batch, open_from)
                kept, late = kept + kept_here, late + late_here
            if batch.num_rows:
                groups.update(pc.unique(batch.column(GROUP)).to_pylist())
                encoder.add(_nullable_inside(batch.drop_columns([GROUP])))
                bounds.extend(time_bounds(batch, BIN))
        encoded = encoder.finish()
        path = None
        if encoded is not None:
            path = f"{prefix}-{subtask}-{uuid.uuid4().hex[:12]}.parquet"
            create_new(shared_store(url), path, encoded.data)
        if fault is not None and subtask == 0:
            strike(fault.action, FaultPoint.STATE_PARTIAL, fault.epoch, fault.worker_pid)
        row = {
            "path": pa.array([path], pa.string()),
            "subtask": pa.array([subtask], pa.int32()),
            "key_groups": [f"{sum(1 << group for group in groups):016x}"],
            "digest": pa.array([encoded.digest if encoded else None], pa.string()),
            "rows": [encoded.rows if encoded else 0],
            "bytes": [len(encoded.data) if encoded else 0],
            "time_start": [min(bounds, default=0)],
            "time_end": [max(bounds, default=0)],
            "kept": [kept],
            "late": [late],
        }
        yield pa.RecordBatch.from_pydict(row)

    return write


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


def _nullable_inside(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose structs may have nulls in all their fields: Spark gives a null VARIANT as one of
    fields that must not be null, and are.
    """
    schema = pa.schema([each.with_type(_nullable_fields(each.type)) for each in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _nullable_fields(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct(
            [each.with_type(_nullable_fields(each.type)).with_nullable(True) for each in fields]
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_nullable_fields(kind.value_type)))
    return kind


def _reader(url: str, files: tuple[StateFile, ...], start: int, end: int) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        for each in files:
            found = read_bins(
                shared_store(url), each.path, each.bytes, each.digest, BIN, start, end
            )
            for batch in found:
                # Files of different ages agree in names and types, not in what they say of nulls.
                yield pa.RecordBatch.from_arrays(batch.columns, batch.schema.names)

    return read
