"""Writes the files of a state table: one per task that has rows, or several of `ROLL_BYTES` each.
Each is built in memory and created in one request.

A task reports each file as one row; the job's `Written` is made from these rows. A write can also be
a step of a job that does more: its tasks pass the rows on, and report by an accumulator. The files
are not part of the table until they are appended to it.
"""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from resurgence.engine.tables.file_cache import remember
from resurgence.engine.tables.task_reports import Reports, TaskReports
from resurgence.faults import FaultAction, FaultPoint, perform
from resurgence.ids import Epoch, Generation
from resurgence.spark_plans.arrow_map import ArrowMap
from resurgence.spark_tasks import current_subtask
from resurgence.state.key_groups import subtask_of
from resurgence.state.records import StateFile
from resurgence.storage.access import store_access
from resurgence.storage.object_store import task_store
from resurgence.storage.parquet import (
    ROLL_BYTES,
    EncodedFile,
    ParquetEncoder,
    create_new,
    time_bounds,
)

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


class NewFiles:
    """The files of one task while they are written."""

    def __init__(self, time: str, create: Callable[[EncodedFile], str], roll_bytes: int) -> None:
        """`time` is the column whose bounds are recorded with each file. `create` stores a file and
        returns its path.
        """
        self._time = time
        self._create = create
        self._roll_bytes = roll_bytes
        self._encoder = ParquetEncoder((time,))
        self._groups: set[int] = set()
        self._bounds: list[int] = []
        self.created: list[dict[str, Any]] = []
        """What is reported of each file."""
        self.groups: set[int] = set()
        """The key groups of all rows."""
        self.newest: int | None = None
        """The highest time of all rows."""
        self.kept = 0
        self.late = 0
        self.partly_late = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows that have `GROUP`."""
        if rows.num_rows:
            groups = pc.unique(rows.column(GROUP)).to_pylist()
            self._add(rows.drop_columns([GROUP]), set(groups))

    def add_ungrouped(self, rows: pa.RecordBatch) -> None:
        """Add rows of groups that earlier rows have."""
        self._add(rows, self.groups)

    def _add(self, rows: pa.RecordBatch, groups: set[int]) -> None:
        start, end = time_bounds(rows, self._time)
        self._bounds += (start, end)
        self._groups |= groups
        self.groups |= groups
        self.newest = end if self.newest is None else max(end, self.newest)
        self._encoder.add(nullable(rows))
        if self._encoder.size >= self._roll_bytes:
            self.finish()

    def finish(self) -> None:
        """Create the current file, if it has rows, and begin another one."""
        encoded = self._encoder.finish()
        if encoded is None:
            return
        self.created.append(
            {
                "path": self._create(encoded),
                "key_groups": f"{bit_set(self._groups):016x}",
                "digest": encoded.digest,
                "rows": encoded.rows,
                "bytes": len(encoded.data),
                "time_start": min(self._bounds),
                "time_end": max(self._bounds),
            }
        )
        self._encoder = ParquetEncoder((self._time,))
        self._groups, self._bounds = set(), []


def bit_set(groups: Iterable[int]) -> int:
    """Return key groups as a bit set."""
    return sum(1 << group for group in groups)


Fill: TypeAlias = Callable[[Iterable[pa.RecordBatch], NewFiles], None]
"""Adds a task's rows to its files. Serialised to the tasks."""


@dataclass(frozen=True)
class StateWriter:
    """Writes below a folder of an object store."""

    url: str
    folder: str
    caches: bool = False
    """Whether tasks store what they write in the cache of their machine, too."""
    _steps: dict[tuple[str, ...], ArrowMap] = field(default_factory=dict, compare=False)
    """How rows with these columns are written."""

    def write(
        self,
        rows: DataFrame,
        columns: Sequence[str],
        fill: Fill,
        time: str,
        epoch: Epoch,
        generation: Generation,
        fault: FaultAction | None,
    ) -> Written:
        """Run one Spark job over rows that have these columns and then `GROUP`. A fault fires in
        the first task, after its files are written, or after the job if that task ran on another
        machine.
        """
        begin = self._beginning(time, epoch, generation)
        injected = _InjectedFault.of(fault, epoch)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            subtask = current_subtask()
            files = begin(subtask)
            fill(batches, files)
            files.finish()
            injected.in_task()
            yield pa.RecordBatch.from_pylist(
                _report(subtask, files), schema=to_arrow_schema(_REPORT)
            )

        step = self._steps.setdefault((*columns,), ArrowMap((*columns, GROUP), _REPORT))
        reports = step.of(rows, task).collect()
        injected.after_job()
        return _written((row.asDict() for row in reports), epoch)

    def write_through(
        self,
        rows: DataFrame,
        step: ArrowMap,
        columns: Sequence[str],
        time: str,
        epoch: Epoch,
        generation: Generation,
        reports: TaskReports,
        fault: FaultAction | None,
    ) -> WriteThrough:
        """Return rows without `GROUP`, some columns of which are stored when a job reads them."""
        begin, parallelism = self._beginning(time, epoch, generation), reports.tasks
        injected, reported = _InjectedFault.of(fault, epoch), reports.begin()
        stored = [*columns, GROUP]

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            subtask, files = 0, None
            for batch in batches:
                if batch.num_rows == 0:
                    continue
                if files is None:
                    subtask = subtask_of(batch.column(GROUP)[0].as_py(), parallelism)
                    files = begin(subtask)
                files.add(batch.select(stored))
                files.kept += batch.num_rows
                yield batch.drop_columns([GROUP])
            if files is not None:
                files.finish()
            injected.in_task()
            reported.add(subtask, [] if files is None else _report(subtask, files))

        return WriteThrough(step.of(rows, task), epoch, reported, injected)

    def _beginning(
        self, time: str, epoch: Epoch, generation: Generation
    ) -> Callable[[int], NewFiles]:
        """Return a function that begins the files of a subtask, for tasks."""
        access, prefix = store_access(self.url), f"{self.folder}/{epoch}-{generation}"
        roll_bytes, caches = ROLL_BYTES, self.caches

        def begin(subtask: int) -> NewFiles:
            def create(file: EncodedFile) -> str:
                path = f"{prefix}-{subtask}-{uuid.uuid4().hex[:12]}.parquet"
                create_new(task_store(access), path, file.data)
                if caches:
                    remember(access, path, file.data)
                return path

            return NewFiles(time, create, roll_bytes)

        return begin


@dataclass(frozen=True)
class WriteThrough:
    """A write that is a step of another job: the one that reads `rows`."""

    rows: DataFrame
    epoch: Epoch
    _reports: Reports
    _fault: _InjectedFault

    def written(self) -> Written:
        """Return what was written, after that job. If Spark did not need these rows, and so did not
        write them, do it now.

        A task that Spark repeats, for a part of its output that was lost, writes the same rows to
        another file, and one of them counts.
        """
        if not self._reports.are_complete():
            self.rows.write.format("noop").mode("append").save()
        self._fault.after_job()
        return _written(self._reports.rows(), self.epoch)


@dataclass(frozen=True)
class _InjectedFault:
    """The fault that fires while state is written, if one is due."""

    action: FaultAction | None
    epoch: Epoch
    pid: int
    machine: str

    @classmethod
    def of(cls, action: FaultAction | None, epoch: Epoch) -> _InjectedFault:
        return cls(action, epoch, os.getpid(), platform.node())

    def in_task(self) -> None:
        if current_subtask() == 0 and platform.node() == self.machine:
            self.after_job()

    def after_job(self) -> None:
        """Perform it, unless a task has: Spark may have known that there were no rows."""
        if self.action is not None:
            perform(self.action, FaultPoint.STATE_PARTIAL, self.epoch, self.pid)


def _report(subtask: int, files: NewFiles) -> list[dict[str, Any]]:
    """Return a row per file, and one with the counts of the task."""
    counts = {"kept": files.kept, "late": files.late, "partly_late": files.partly_late}
    return [{"subtask": subtask, **each} for each in (*files.created, counts)]


def _written(reports: Iterable[Mapping[str, Any]], epoch: Epoch) -> Written:
    """Return what the tasks of a job have reported."""
    listed = sorted(reports, key=lambda row: int(row["subtask"]))
    files = tuple(
        StateFile(
            path=row["path"],
            subtask=row["subtask"],
            epoch=epoch,
            rows=row["rows"],
            bytes=row["bytes"],
            key_groups=int(row["key_groups"], 16),
            time_start=row["time_start"],
            time_end=row["time_end"],
            digest=row["digest"],
        )
        for row in listed
        if row.get("path") is not None
    )
    counts = (
        sum(int(row.get(each) or 0) for row in listed) for each in ("kept", "late", "partly_late")
    )
    return Written(files, *counts)


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
