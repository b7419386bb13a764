"""Writes the files of a state table: one per task that has rows, built in memory and created in one
request.

A task reports its file as one row; the job's `Written` is made from these rows. The files are not
part of the table until they are appended to it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from resurgence.faults import FaultAction, FaultPoint, perform
from resurgence.ids import Epoch, Generation
from resurgence.spark_tasks import current_subtask
from resurgence.state.records import StateFile
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import task_store
from resurgence.storage.parquet import ParquetEncoder, create_new, time_bounds

GROUP = "__key_group"
"""The column with a row's key group. It is not stored."""

_REPORT = StructType(
    [
        StructField("path", StringType()),
        StructField("subtask", IntegerType()),
        StructField("key_groups", StringType()),
        StructField("digest", StringType()),
        *(
            StructField(name, LongType())
            for name in ("rows", "bytes", "time_start", "time_end", "kept", "late", "partly_late")
        ),
    ]
)


@dataclass(frozen=True)
class Written:
    """The files that one job wrote, and how many input rows were written and how many were late."""

    files: tuple[StateFile, ...]
    kept_rows: int
    late_rows: int
    partly_late_rows: int = 0
    """Of the written input rows: those that were late for some of their windows."""

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files)

    def plus(self, other: Written) -> Written:
        """Return the sum of both."""
        return Written(
            (*self.files, *other.files),
            self.kept_rows + other.kept_rows,
            self.late_rows + other.late_rows,
            self.partly_late_rows + other.partly_late_rows,
        )


@dataclass
class NewFile:
    """The file of one task while it is written."""

    time: str
    """The column whose bounds are recorded with the file."""
    encoder: ParquetEncoder = field(init=False)
    groups: set[int] = field(default_factory=set)
    bounds: list[int] = field(default_factory=list)
    kept: int = 0
    late: int = 0
    partly_late: int = 0

    def __post_init__(self) -> None:
        self.encoder = ParquetEncoder((self.time,))

    @property
    def key_groups(self) -> int:
        """The key groups of its rows, as a bit set."""
        return sum(1 << group for group in self.groups)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows that have `GROUP`."""
        if rows.num_rows:
            self.groups.update(pc.unique(rows.column(GROUP)).to_pylist())
            self.add_ungrouped(rows.drop_columns([GROUP]))

    def add_ungrouped(self, rows: pa.RecordBatch) -> None:
        """Add rows of groups that the file has already."""
        self.bounds.extend(time_bounds(rows, self.time))
        self.encoder.add(nullable(rows))


Fill: TypeAlias = Callable[[Iterable[pa.RecordBatch], NewFile], None]
"""Adds a task's rows to its file. Serialised to the tasks."""


@dataclass(frozen=True)
class StateWriter:
    """Writes below a folder of an object store."""

    url: str
    folder: str

    def write(
        self,
        rows: DataFrame,
        fill: Fill,
        time: str,
        epoch: Epoch,
        generation: Generation,
        fault: FaultAction | None,
    ) -> Written:
        """Run one Spark job over rows that have `GROUP`. A fault fires in the first task, after
        its file is written.
        """
        access, prefix = store_access(self.url), f"{self.folder}/{epoch}-{generation}"
        pid = os.getpid()

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            subtask = current_subtask()
            file = NewFile(time)
            fill(batches, file)
            report = _created(access, f"{prefix}-{subtask}", subtask, file)
            if fault is not None and subtask == 0:
                perform(fault, FaultPoint.STATE_PARTIAL, epoch, pid)
            yield report

        reports = rows.mapInArrow(task, _REPORT).collect()
        if fault is not None:
            # Spark knew that there were no rows, and did not run a task.
            perform(fault, FaultPoint.STATE_PARTIAL, epoch, pid)
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
            for row in sorted(reports, key=lambda row: int(row.subtask))
            if row.path is not None
        )
        counts = (
            sum(int(row[each]) for row in reports) for each in ("kept", "late", "partly_late")
        )
        return Written(files, *counts)


def _created(access: StoreAccess, prefix: str, subtask: int, file: NewFile) -> pa.RecordBatch:
    """Create the file, if it has rows, and return its report."""
    encoded = file.encoder.finish()
    path = None
    if encoded is not None:
        path = f"{prefix}-{uuid.uuid4().hex[:12]}.parquet"
        create_new(task_store(access), path, encoded.data)
    row = {
        "path": pa.array([path], pa.string()),
        "subtask": pa.array([subtask], pa.int32()),
        "key_groups": [f"{file.key_groups:016x}"],
        "digest": pa.array([encoded.digest if encoded else None], pa.string()),
        "rows": [encoded.rows if encoded else 0],
        "bytes": [len(encoded.data) if encoded else 0],
        "time_start": [min(file.bounds, default=0)],
        "time_end": [max(file.bounds, default=0)],
        "kept": [file.kept],
        "late": [file.late],
        "partly_late": [file.partly_late],
    }
    return pa.RecordBatch.from_pydict(row)


def nullable(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in which every field is nullable. Batches agree in names and types, but not in
    nullability, and Spark returns a null VARIANT as a struct with nulls in non-nullable fields.
    """
    fields = [pa.field(each.name, _nullable_inside(each.type)) for each in rows.schema]
    schema = pa.schema(fields)
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _nullable_inside(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct(
            [each.with_type(_nullable_inside(each.type)).with_nullable(True) for each in fields]
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_nullable_inside(kind.value_type)))
    return kind
