"""The rows of data files of a table, read by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from resurgence.connectors.lookups.files import FilePart, selected_rows
from resurgence.errors import (
    ObjectMissing,
    ResurgenceError,
    SinkFileMissing,
    SourceRangeGone,
    StorageError,
    UserError,
)
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import task_store
from resurgence.storage.ranged_file import RangedFile

_BATCH_ROWS = 20_000
MissingFile: TypeAlias = Callable[[str], ResurgenceError]
"""Makes the error for a file that does not exist, by its URL."""
ROW_NUMBER = "__row_number"
"""If this column is wanted, it numbers the rows of a part that are read, from its value in the part."""


def read_stored(
    spark: SparkSession,
    url: str,
    parts: Sequence[FilePart],
    columns: StructType,
    tasks: int,
    *,
    missing: MissingFile,
) -> DataFrame:
    """Return columns of all rows of these files, which are divided among tasks. A column that a
    file does not have is the value of its part, or null. `missing` makes the error for a file that
    does not exist.
    """
    return read_groups(spark, url, [(each,) for each in parts], columns, tasks, missing=missing)


def read_groups(
    spark: SparkSession,
    url: str,
    groups: Sequence[Sequence[FilePart]],
    columns: StructType,
    tasks: int,
    *,
    missing: MissingFile,
) -> DataFrame:
    """As `read_stored`, but all files of a group are read by the same task, in their order."""
    wanted = to_arrow_schema(columns, timezone="UTC")
    if not groups:
        return spark.createDataFrame([], columns)
    read = _reader(store_access(url), tuple(map(tuple, groups)), wanted, missing)
    count = max(1, min(len(groups), tasks))
    return spark.range(0, len(groups), 1, count).mapInArrow(read, columns)


def gone_from_source(place: str) -> ResurgenceError:
    """Return the error for a file that a source has planned to read."""
    return SourceRangeGone(
        f"{place} does not exist any more",
        hint="Check whether the table was vacuumed with a shorter retention than the time that"
        " readers need.",
    )


def gone_from_table(place: str) -> ResurgenceError:
    """Return the error for a file of the table that a sink rewrites."""
    return SinkFileMissing(
        f"{place} is part of the table that is updated, but does not exist",
        hint="Restore it from a backup, or remove it from the table, as FSCK REPAIR TABLE does. The"
        " job will retry.",
    )


def gone_from_state(place: str) -> ResurgenceError:
    """Return the error for a file with staged changes."""
    return ObjectMissing(
        f"{place}, which has changes of an epoch, does not exist",
        hint="Restore the state of the job from a backup.",
    )


def _reader(
    access: StoreAccess,
    groups: tuple[tuple[FilePart, ...], ...],
    wanted: pa.Schema,
    missing: MissingFile,
) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in groups[number]:
                    yield from _rows(access, part, wanted, missing)

    return read


def _rows(
    access: StoreAccess, part: FilePart, wanted: pa.Schema, missing: MissingFile
) -> Iterator[pa.RecordBatch]:
    place = f"{access.url}/{part.path}"
    try:
        with RangedFile(task_store(access), part.path) as stored:
            file = pq.ParquetFile(stored, coerce_int96_timestamp_unit="us", pre_buffer=True)
            names = {each.lower(): each for each in file.schema_arrow.names}
            in_file = [names[each.lower()] for each in wanted.names if each.lower() in names]
            # Even if no column of the file is wanted, the number of rows is.
            read = in_file or [*names.values()][:1]
            done = 0
            for batch in selected_rows(file.iter_batches(_BATCH_ROWS, columns=read), part.selected):
                yield pa.RecordBatch.from_arrays(
                    [_column(batch, each, names, part, place, done) for each in wanted],
                    schema=wanted,
                )
                done += batch.num_rows
    except ObjectMissing as error:
        raise missing(place) from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        raise StorageError(f"{place} cannot be read: {reason}") from error


def _column(
    batch: pa.RecordBatch,
    field: pa.Field,
    names: Mapping[str, str],
    part: FilePart,
    place: str,
    done: int,
) -> pa.Array:
    name = field.name.lower()
    if name == ROW_NUMBER:
        first = part.values[ROW_NUMBER].as_py() + done
        return pa.array(np.arange(first, first + batch.num_rows))
    if name not in names:
        value = part.values.get(name, pa.scalar(None, field.type))
        return pa.repeat(value, batch.num_rows).cast(field.type)
    return as_type(batch.column(names[name]), field, place)


def as_type(column: pa.Array, field: pa.Field, place: str) -> pa.Array:
    """Cast a stored column to the type of a field. Raise UserError if a value does not fit; `place`
    is its file.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    try:
        # Spark's timestamps have microseconds; finer digits are truncated.
        return pc.cast(column, options=pc.CastOptions(field.type, allow_time_truncate=True))
    except pa.ArrowException as error:
        raise UserError(
            f"column '{field.name}' of {place} is {column.type} and cannot be read as {field.type}:"
            f" {str(error).split(chr(10), 1)[0]}",
            hint="Declare the column with its stored type, and cast it in the query.",
        ) from error
