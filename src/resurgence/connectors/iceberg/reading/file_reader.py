"""Reads data files of Iceberg tables in Spark's tasks.

Columns are found by their field ids, so that files that are older than a renamed or added column are
read right. A file without ids, which another system has written, is read by names. Position deletes
are applied; the driver refuses files with other deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.lakehouse.stored_rows import MissingFile, as_type
from resurgence.errors import ObjectMissing, SourceError, StorageError
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.access import StoreAccess
from resurgence.storage.object_store import task_store
from resurgence.storage.ranged_file import RangedFile

FILE, ROW = "__file", "__row"
"""The columns with the path of a row's file, relative to the table, and its number in it."""
Positions: TypeAlias = npt.NDArray[np.int64]
_BATCH_ROWS = 20_000
_FIELD_ID = b"PARQUET:field_id"
_PLACE = [StructField(FILE, StringType()), StructField(ROW, LongType())]
_ARROW_PLACE = pa.schema([(FILE, pa.string()), (ROW, pa.int64())])


@dataclass(frozen=True)
class StoredPath:
    """An object, and the URL of its store."""

    url: str
    path: str


@dataclass(frozen=True)
class FilePiece:
    """Some rows of a data file."""

    file: StoredPath
    location: str
    """As the table's metadata has it."""
    name: str
    """The value of FILE."""
    start: int = 0
    end: int | None = None
    """The rows from `start` up to `end`; all that follow if None."""
    shared: Mapping[int, pa.Scalar] = field(default_factory=dict)
    """Values of columns that may be absent from the file, by field id."""
    deletes: tuple[StoredPath, ...] = ()
    """Files with the positions of deleted rows."""


@dataclass(frozen=True)
class ReadColumns:
    """The columns to read: their field ids and names in the table, and their declared types."""

    ids: tuple[int, ...]
    stored: tuple[str, ...]
    schema: pa.Schema
    missing: MissingFile
    """Makes the error for a file that does not exist."""

    def extended(self, others: Mapping[str, int], kind: pa.DataType) -> ReadColumns:
        """Return these columns and others of one type, whose values pieces have by these ids."""
        return replace(
            self,
            ids=(*self.ids, *others.values()),
            stored=(*self.stored, *others),
            schema=pa.schema([*self.schema, *((name, kind) for name in others)]),
        )


def read_pieces(
    spark: SparkSession,
    pieces: Sequence[FilePiece],
    accesses: Mapping[str, StoreAccess],
    columns: ReadColumns,
    schema: StructType,
    tasks: int,
    *,
    with_place: bool = False,
) -> DataFrame:
    """Return the rows of these pieces, which are divided among tasks; with FILE and ROW if asked
    for. `schema` is that of the columns in Spark.
    """
    groups = tuple((each,) for each in pieces)
    read = _reader(groups, dict(accesses), columns, with_place=with_place)
    returned = StructType([*schema.fields, *_PLACE]) if with_place else schema
    return _numbers(spark, len(groups), tasks).mapInArrow(read, returned)


def read_groups(
    spark: SparkSession,
    groups: Sequence[Sequence[FilePiece]],
    accesses: Mapping[str, StoreAccess],
    columns: ReadColumns,
    schema: StructType,
    tasks: int,
) -> DataFrame:
    """As `read_pieces`, but all pieces of a group are read by the same task, in their order."""
    read = _reader(tuple(map(tuple, groups)), dict(accesses), columns, with_place=False)
    return _numbers(spark, len(groups), tasks).mapInArrow(read, schema)


def _numbers(spark: SparkSession, count: int, tasks: int) -> DataFrame:
    return spark.range(0, count, 1, max(1, min(tasks, count)))


def _reader(
    groups: tuple[tuple[FilePiece, ...], ...],
    accesses: dict[str, StoreAccess],
    columns: ReadColumns,
    *,
    with_place: bool,
) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in groups[number]:
                    for rows, places in _read_piece(piece, accesses, columns):
                        yield _placed(rows, piece.name, places) if with_place else rows

    return read


def _read_piece(
    piece: FilePiece, accesses: Mapping[str, StoreAccess], columns: ReadColumns
) -> Iterator[tuple[pa.RecordBatch, Positions]]:
    """Yield rows, each batch with their positions in the file."""
    place = f"{piece.file.url}/{piece.file.path}"
    try:
        deleted = _deleted_rows(piece, accesses)
        with RangedFile(task_store(accesses[piece.file.url]), piece.file.path) as stored:
            file = pq.ParquetFile(stored, coerce_int96_timestamp_unit="us", pre_buffer=True)
            found = _found_columns(file.schema_arrow, columns)
            # Even if no column of the file is wanted, the number of rows is.
            names = [each for each in found if each is not None] or file.schema_arrow.names[:1]
            for first, batch in _row_range(file, names, piece.start, piece.end):
                kept = np.arange(first, first + batch.num_rows)
                if len(deleted):
                    is_kept = ~np.isin(kept, deleted)
                    batch, kept = batch.filter(pa.array(is_kept)), kept[is_kept]
                yield _declared(batch, found, piece, columns, place), kept
    except ObjectMissing as error:
        raise columns.missing(place) from error
    except (StorageError, pa.ArrowException, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        raise SourceError(
            f"{place} cannot be read: {reason}",
            hint="Check that the warehouse is accessible. The job will retry.",
        ) from error


def _found_columns(stored: pa.Schema, columns: ReadColumns) -> list[str | None]:
    """Return the name in the file of each column; None if the file does not have it."""
    by_id = {
        int(each.metadata[_FIELD_ID]): each.name
        for each in stored
        if each.metadata and _FIELD_ID in each.metadata
    }
    if by_id:
        return [by_id.get(each) for each in columns.ids]
    return [each if each in stored.names else None for each in columns.stored]


def _row_range(
    file: pq.ParquetFile, names: list[str], start: int, end: int | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a range, each batch with the number of its first row. Row groups outside of
    it are not read.
    """
    end = file.metadata.num_rows if end is None else end
    first = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if first < end and first + rows > start:
            at = first
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names):
                low, high = max(start - at, 0), min(end - at, batch.num_rows)
                if low < high:
                    yield at + low, batch.slice(low, high - low)
                at += batch.num_rows
        first += rows


def _declared(
    batch: pa.RecordBatch,
    found: list[str | None],
    piece: FilePiece,
    columns: ReadColumns,
    place: str,
) -> pa.RecordBatch:
    values = []
    for field_id, name, wanted in zip(columns.ids, found, columns.schema, strict=True):
        if name is not None:
            column = batch.column(name)
        else:
            one = piece.shared.get(field_id, pa.scalar(None, wanted.type))
            column = pa.repeat(one, batch.num_rows)
        values.append(as_type(column, wanted, place))
    return pa.RecordBatch.from_arrays(values, schema=columns.schema)


def _placed(rows: pa.RecordBatch, name: str, places: Positions) -> pa.RecordBatch:
    added = [pa.repeat(pa.scalar(name), rows.num_rows), pa.array(places, pa.int64())]
    schema = pa.schema([*rows.schema, *_ARROW_PLACE])
    return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema)


def _deleted_rows(piece: FilePiece, accesses: Mapping[str, StoreAccess]) -> Positions:
    """Return the positions of the deleted rows of a file."""
    found = []
    for each in piece.deletes:
        with RangedFile(task_store(accesses[each.url]), each.path) as stored:
            deletes = pq.ParquetFile(stored).read(columns=["file_path", "pos"])
        is_own = pc.equal(deletes.column("file_path"), piece.location)
        found.append(deletes.filter(is_own).column("pos").to_numpy())
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)
