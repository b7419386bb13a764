"""TimeTable: an operator's rows in event-time bins, as Parquet files, written and read by Spark tasks.

Append-only. Each epoch appends one file per subtask that has rows; a bin is read when the watermark passes it, and a
file is dropped when its last bin has been. Which rows a subtask holds is fixed by key groups: the shuffle has
KEY_GROUPS partitions, and coalesce gives each subtask a contiguous range of them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from resurgence.ids import Epoch, Generation
from resurgence.state.key_groups import KEY_GROUPS, deal, owned_groups
from resurgence.state.records import StateFile, TableCheckpoint, TableKind
from resurgence.storage.object_store import shared_store
from resurgence.storage.parquet import ParquetEncoder, create_new, read_bins, time_bounds
from resurgence.testing.faults import FaultAction, FaultPoint, strike

BIN = "bin"
"""The column with a row's bin: the start of its window, in microseconds."""

_WRITTEN = "path STRING, subtask INT, rows BIGINT, bytes BIGINT, time_start BIGINT, time_end BIGINT"
_OWNED_START, _OWNED_END = "__owned_start", "__owned_end"

_ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class PartialFault:
    """A fault to strike inside the first task, after its file is written."""

    action: FaultAction
    epoch: int
    worker_pid: int


class TimeTable:
    """The live files of one table. Changes of the list of files become durable with the next checkpoint."""

    def __init__(
        self, *, url: str, folder: str, schema: StructType, keys: tuple[str, ...], parallelism: int
    ) -> None:
        self._url = url
        self._folder = folder
        self._schema = schema
        self._keys = keys
        self._parallelism = parallelism
        self.files: tuple[StateFile, ...] = ()

    def checkpoint(self) -> TableCheckpoint:
        """The table as it goes into the operator's metadata."""
        return TableCheckpoint(kind=TableKind.TIME, schema_text=self._schema.json(), files=self.files)

    def write(
        self, rows: DataFrame, epoch: Epoch, generation: Generation, fault: FaultAction | None = None
    ) -> tuple[StateFile, ...]:
        """Write rows as files, one Spark job. They are not part of the table until they are put into `files`.

        `rows` come out of a shuffle with KEY_GROUPS partitions by (bin, keys).
        """
        planned = PartialFault(fault, epoch, os.getpid()) if fault else None
        task = _writer(self._url, f"{self._folder}/{epoch}-{generation}", planned)
        written = rows.coalesce(self._parallelism).mapInArrow(task, _WRITTEN).collect()
        return tuple(
            StateFile(
                path=row.path,
                subtask=row.subtask,
                epoch=epoch,
                rows=row.rows,
                bytes=row.bytes,
                key_groups=owned_groups(row.subtask, self._parallelism),
                time_start=row.time_start,
                time_end=row.time_end,
            )
            for row in sorted(written, key=lambda row: int(row.subtask))
        )

    def overlapping(self, start: int, end: int) -> tuple[StateFile, ...]:
        """The files that may have rows in the bins [start, end)."""
        return tuple(each for each in self.files if each.time_start < end and each.time_end >= start)

    def read(self, spark: SparkSession, start: int, end: int) -> DataFrame:
        """The rows in the bins [start, end): each subtask reads the files that hold its keys."""
        dealt = deal(self.overlapping(start, end), self._parallelism)
        split = any(each.partial for slices in dealt for each in slices)
        schema = self._schema
        if split:
            extra = [StructField(_OWNED_START, IntegerType()), StructField(_OWNED_END, IntegerType())]
            schema = StructType([*self._schema.fields, *extra])
        plan = tuple(tuple((each.file.path, each.file.bytes) for each in slices) for slices in dealt)
        tasks = spark.range(0, self._parallelism, 1, self._parallelism)
        rows = tasks.mapInArrow(_reader(self._url, plan, start, end, split), schema)
        if not split:
            return rows
        group = f"pmod(hash({', '.join((BIN, *self._keys))}), {KEY_GROUPS})"
        return rows.where(f"{group} >= {_OWNED_START} AND {group} < {_OWNED_END}").drop(
            _OWNED_START, _OWNED_END
        )

    def drop_before(self, bound: int) -> None:
        """Forget the files whose bins all lie before a bound."""
        self.files = tuple(each for each in self.files if each.time_end >= bound)

    def fullest_subtask(self) -> int:
        """How many live files the subtask with the most of them has."""
        return max((len(slices) for slices in deal(self.files, self._parallelism)), default=0)


def _writer(url: str, prefix: str, fault: PartialFault | None) -> _ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        subtask = context.partitionId() if context is not None else 0
        encoder = ParquetEncoder()
        bounds: list[int] = []
        for batch in batches:
            if batch.num_rows:
                encoder.add(batch)
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
                "rows": [encoded.rows],
                "bytes": [len(encoded.data)],
                "time_start": [min(bounds)],
                "time_end": [max(bounds)],
            }
            yield pa.RecordBatch.from_pydict(row)

    return write


def _reader(
    url: str, plan: tuple[tuple[tuple[str, int], ...], ...], start: int, end: int, split: bool
) -> _ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        context = TaskContext.get()
        subtask = context.partitionId() if context is not None else 0
        owned = owned_groups(subtask, len(plan))
        for path, size in plan[subtask]:
            for batch in read_bins(shared_store(url), path, size, BIN, start, end):
                extra = [_constant(owned.start, batch), _constant(owned.end, batch)] if split else []
                names = [*batch.schema.names, *([_OWNED_START, _OWNED_END] if split else [])]
                # Files of different ages agree in names and types, not in what their schemas say of nulls.
                yield pa.RecordBatch.from_arrays([*batch.columns, *extra], names)

    return read


def _constant(value: int, batch: pa.RecordBatch) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), batch.num_rows)
