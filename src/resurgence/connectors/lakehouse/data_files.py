"""Data files of lakehouse tables: Spark's tasks write them at their final paths, and report each.

A file is not part of its table until a transaction of the table refers to it. So it needs no rename,
and an attempt that is never committed leaves files that no reader sees. Names are unique and begin
with the epoch and the generation that wrote them, in a folder per job: what an epoch has left
behind can be listed without listing the table.

A task writes one file per partition that it has rows of, and begins another when one has grown to
the target size. If it has more files open than fit in memory, the largest are completed early.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import JsonValue
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.lakehouse.table_file import ROW_GROUP_BYTES, FileFacts, TableFile
from resurgence.errors import MessageRefused
from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import task_store
from resurgence.storage.parquet import create_new

TARGET_BYTES = 128 * 1024 * 1024
_OPEN_BYTES = 256 * 1024 * 1024
"""How much a task holds in files that are not complete."""
_WRITTEN = StructType(
    [
        StructField("path", StringType()),
        StructField("rows", LongType()),
        StructField("bytes", LongType()),
        StructField("details", StringType()),
    ]
)

PartitionValues: TypeAlias = tuple[object, ...]
"""The value of each partition field, as Python has it."""
PartitionOf: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns the partition of each row: one column per partition field."""
Describe: TypeAlias = Callable[[FileFacts, PartitionValues], Mapping[str, JsonValue]]
"""Returns what a commit must know of a file, as JSON."""
RequireRows: TypeAlias = Callable[[pa.RecordBatch], None]
"""Raises MessageRefused for rows that the table cannot have."""


@dataclass(frozen=True)
class SortField:
    """A column by which the rows of a file are sorted. Nulls are the lowest values."""

    column: str
    is_descending: bool = False


def unpartitioned(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The partitions of a table without partition fields."""
    return rows.select([])


def any_rows(_rows: pa.RecordBatch) -> None:
    """Tables that can have any row."""


@dataclass(frozen=True)
class FileLayout:
    """How rows become data files. Everything here is serialised to tasks."""

    schema: pa.Schema
    """The columns of a file. Rows are cast to it; its metadata, as of field ids, is written. Values
    of fields that are not nullable are checked.
    """
    describe: Describe
    partition_of: PartitionOf = unpartitioned
    """Applied to rows before they are cast."""
    sorted_by: tuple[SortField, ...] = ()
    target_bytes: int = TARGET_BYTES
    compression: str = "zstd"
    require: RequireRows = any_rows
    """Applied to rows before they are cast."""


def files_prefix(folder: str, job: JobIdentity, epoch: Epoch, generation: Generation) -> str:
    """Return how the paths of an epoch's files begin."""
    return f"{folder}/{job}/{epoch:010}-{generation}"


def epoch_of(path: str) -> Epoch | None:
    """Return the epoch in the path of a data file; None if we did not write it."""
    number = path.rsplit("/", 1)[-1].split("-", 1)[0]
    return Epoch(int(number)) if len(number) == 10 and number.isdecimal() else None


def write_files(
    rows: DataFrame,
    url: str,
    prefix: str,
    layout: FileLayout,
    *,
    access: StoreAccess | None = None,
) -> StagedOutput:
    """Write rows as files named `{prefix}-{unique}.parquet` under a URL. `access`: if it is not the
    one that this process has.
    """
    writer = _writer(access or store_access(url), prefix, layout)
    written = _in_order(rows, layout).mapInArrow(writer, _WRITTEN).collect()
    files = tuple(
        sorted(
            (
                StagedFile(
                    path=row["path"],
                    rows=row["rows"],
                    bytes=row["bytes"],
                    details=json.loads(row["details"]),
                )
                for row in written
            ),
            key=lambda each: each.path,
        )
    )
    return StagedOutput(rows=sum(each.rows for each in files), files=files)


def rehearse_files(rows: DataFrame, layout: FileLayout) -> DataFrame:
    """Return a DataFrame without rows. Computing it fails on rows that `write_files` refuses."""

    def rehearse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            layout.require(batch)
            layout.partition_of(batch)
            as_stored(batch, layout.schema)
        yield from ()

    return rows.mapInArrow(rehearse, _WRITTEN)


def _in_order(rows: DataFrame, layout: FileLayout) -> DataFrame:
    if not layout.sorted_by:
        return rows
    return rows.sortWithinPartitions(
        *(
            F.desc(f"`{each.column}`") if each.is_descending else F.asc(f"`{each.column}`")
            for each in layout.sorted_by
        )
    )


def _writer(access: StoreAccess, prefix: str, layout: FileLayout) -> ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _OpenFiles(access, prefix, layout)
        for batch in batches:
            layout.require(batch)
            for values, rows in by_partition(batch, layout.partition_of(batch)):
                yield from files.add(values, as_stored(rows, layout.schema))
        yield from files.finish()

    return write


class _OpenFiles:
    """The files of one task that are not complete, by partition."""

    def __init__(self, access: StoreAccess, prefix: str, layout: FileLayout) -> None:
        self._access = access
        self._prefix = prefix
        self._layout = layout
        self._files: dict[PartitionValues, TableFile] = {}

    def add(self, values: PartitionValues, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows to a partition, and report the files that are complete."""
        if values not in self._files:
            # A small file must have a row group before its size is known, too.
            group_bytes = min(ROW_GROUP_BYTES, self._layout.target_bytes)
            self._files[values] = TableFile(
                self._layout.schema, self._layout.compression, group_bytes
            )
        file = self._files[values]
        file.add(rows)
        if file.size >= self._layout.target_bytes:
            yield self._completed(values)
        while sum(each.held_bytes for each in self._files.values()) > _OPEN_BYTES:
            yield self._completed(max(self._files, key=lambda each: self._files[each].held_bytes))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Report the files that are left."""
        for values in [*self._files]:
            yield self._completed(values)

    def _completed(self, values: PartitionValues) -> pa.RecordBatch:
        facts = self._files.pop(values).finish()
        path = f"{self._prefix}-{uuid.uuid4().hex[:12]}.parquet"
        create_new(task_store(self._access), path, facts.data)
        details = json.dumps({**self._layout.describe(facts, values)})
        return pa.RecordBatch.from_pydict(
            {
                "path": [path],
                "rows": [facts.rows],
                "bytes": [len(facts.data)],
                "details": [details],
            }
        )


def by_partition(
    rows: pa.RecordBatch, partitions: pa.RecordBatch
) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """Divide rows by their partition. Rows of a partition keep their order."""
    if not rows.num_rows:
        return
    if not partitions.num_columns:
        yield (), rows
        return
    names = [f"p{number}" for number in range(partitions.num_columns)]
    numbered = pa.table(
        [*partitions.columns, pa.array(np.arange(rows.num_rows))], names=[*names, "place"]
    )
    groups = numbered.group_by(names, use_threads=False).aggregate([("place", "list")])
    places = groups.column("place_list")
    for number, values in enumerate(zip(*(groups.column(each) for each in names), strict=True)):
        taken = rows if len(groups) == 1 else rows.take(places[number].values)
        yield tuple(each.as_py() for each in values), taken


def as_stored(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema, in its types. Raise MessageRefused if a value does not fit."""
    columns = []
    for field in schema:
        column = rows.column(field.name)
        if not field.nullable and column.null_count:
            raise MessageRefused(
                f"column '{field.name}' of a row is null, but the table does not allow nulls in it",
                hint="Filter such rows in the query, or make the column of the table nullable.",
            )
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            reason = str(error).split("\n", 1)[0]
            raise MessageRefused(
                f"a value of column '{field.name}' cannot be stored as {field.type}: {reason}",
                hint="Cast it in the query.",
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)
