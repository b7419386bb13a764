"""Lookup tables of Parquet files: a folder of them, on a disk or in an object store.

Tasks read the files through the same object stores that sinks write to, so every place that a sink
can write to can be looked up, without Spark's file systems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.lookups.contract import (
    arrow_schema,
    as_declared,
    lookup_position,
    spark_schema,
    stored_names,
    unreadable,
    unusable,
)
from resurgence.errors import ObjectMissing, StorageError
from resurgence.graph.table_options import TableOptions, option
from resurgence.graph.values import Column
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import (
    shared_store,
    split_url,
    storage_url,
    task_store,
)
from resurgence.storage.ranged_file import RangedFile

_BATCH_ROWS = 20_000
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class FilePart:
    """One file of a table, and the values that all its rows share."""

    path: str
    """Relative to the table's folder."""
    values: Mapping[str, pa.Scalar]
    """Columns that may be absent from the file, by lower-case name."""
    selected: pa.BooleanArray | None = None
    """Which of its first rows are read; all rows after them are."""


class FilesystemLookupOptions(TableOptions):
    """The options of a `filesystem` lookup table."""

    path: str = option(
        "a folder or storage URL; all files `*.parquet` under it, at any depth, are the table."
        " Names that begin with `.` or `_` are ignored"
    )


class FilesystemLookup:
    """A folder of Parquet files, all with the same columns."""

    def __init__(
        self, table: str, options: FilesystemLookupOptions, columns: Sequence[Column]
    ) -> None:
        self._table = table
        self._url = storage_url(options.path)
        self._columns = tuple(columns)

    def check(self) -> None:
        require_folder(self._table, self._url)
        if split_url(self._url)[0] == "file" and not self._files():
            raise unusable(
                self._table,
                f"there are no files *{_SUFFIX} under {self._url}",
                "Check the option 'path'.",
            )

    def read(self, spark: SparkSession) -> DataFrame:
        require_folder(self._table, self._url)
        files = self._files()
        if not files:
            raise unreadable(
                self._table,
                f"there are no files *{_SUFFIX} under {self._url} any more",
                "Add files there. The job will retry.",
            )
        parts = tuple(FilePart(each, {}) for each in files)
        return read_parts(spark, self._table, self._url, parts, self._columns)

    def _files(self) -> list[str]:
        """Return the files of the table. Files with hidden names, such as staged output, are
        ignored.
        """
        return [
            each.path
            for each in shared_store(self._url).list("")
            if each.path.endswith(_SUFFIX)
            and not any(step.startswith((".", "_")) for step in each.path.split("/"))
        ]


def require_folder(table: str, url: str) -> None:
    """Raise UserError if this is a local folder that does not exist. Opening a store would create
    it.
    """
    scheme, path = split_url(url)
    if scheme == "file" and not Path(path).is_dir():
        raise unusable(table, f"folder {path} does not exist", "Check the option 'path'.")


def read_parts(
    spark: SparkSession,
    table: str,
    url: str,
    parts: tuple[FilePart, ...],
    columns: Sequence[Column],
) -> DataFrame:
    """Return the declared columns of all rows of these files, which are divided among tasks."""
    tasks = max(1, min(len(parts), spark.sparkContext.defaultParallelism))
    reader = _part_reader(table, store_access(url), parts, arrow_schema(columns))
    return spark.range(0, len(parts), 1, tasks).mapInArrow(reader, spark_schema(columns))


def _part_reader(
    table: str, access: StoreAccess, parts: tuple[FilePart, ...], wanted: pa.Schema
) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read_part(table, access, parts[number], wanted)

    return read


def _read_part(
    table: str, access: StoreAccess, part: FilePart, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    place = f"{access.url}/{part.path}"
    try:
        with RangedFile(task_store(access), part.path) as stored:
            file = pq.ParquetFile(stored, coerce_int96_timestamp_unit="us", pre_buffer=True)
            names = file.schema_arrow.names
            shared = {
                name: part.values[name.lower()]
                for name in wanted.names
                if name.lower() in part.values and name.lower() not in map(str.lower, names)
            }
            in_file = pa.schema([each for each in wanted if each.name not in shared])
            read = stored_names(table, place, names, in_file)
            # Even if no column of the file is wanted, the number of rows is.
            batches = file.iter_batches(_BATCH_ROWS, columns=read or names[:1])
            for batch in selected_rows(batches, part.selected):
                found = {
                    each.name: batch.column(name) for each, name in zip(in_file, read, strict=True)
                }
                found |= {name: pa.repeat(one, batch.num_rows) for name, one in shared.items()}
                yield as_declared(table, place, found, wanted)
    except ObjectMissing as error:
        raise unreadable(
            table,
            f"{place} does not exist any more",
            "Check whether files were replaced while they were read. The job will retry.",
        ) from error
    except (StorageError, pa.ArrowException, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        raise unreadable(
            table,
            f"{place} cannot be read: {reason}",
            f"Check whether {lookup_position(table)} is being rewritten. The job will retry.",
        ) from error


def selected_rows(
    batches: Iterator[pa.RecordBatch], selected: pa.BooleanArray | None
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows."""
    start = 0
    for batch in batches:
        known = selected.slice(start, batch.num_rows) if selected is not None else ()
        start += batch.num_rows
        if len(known):
            rest = pa.repeat(pa.scalar(True), batch.num_rows - len(known))
            yield batch.filter(pa.concat_arrays([known, rest]))
        else:
            yield batch
