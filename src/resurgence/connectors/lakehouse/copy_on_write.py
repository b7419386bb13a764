"""Upserts by copy-on-write: Spark's tasks find the files that hold changed keys, and rewrite them.

The changes of an epoch are staged as rows with IS_DELETED, one per key. Two Spark jobs apply them to
a version of the table: the first reads the key columns of the files that may hold one of the keys,
and returns the numbers of those that do; the second reads these files, leaves out the rows with
changed keys, and writes what is left together with the new rows. Rows stay in tasks.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pydantic import JsonValue
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from resurgence.connectors.contract import StagedOutput
from resurgence.connectors.lakehouse.data_files import (
    FileLayout,
    PartitionValues,
    RequireRows,
    any_rows,
    write_files,
)
from resurgence.connectors.lakehouse.pruning import ranges_as_json
from resurgence.connectors.lakehouse.stored_rows import (
    gone_from_state,
    gone_from_table,
    read_stored,
)
from resurgence.connectors.lakehouse.table_file import FileFacts
from resurgence.connectors.lookups.files import FilePart
from resurgence.connectors.net_rows import IS_DELETED, net_rows
from resurgence.storage.access import StoreAccess

KEY_RANGES = "keys"
FILE_NUMBER = "__file"
"""The column with the number of a row's file."""
_BROADCAST_BYTES = 32 * 1024 * 1024
"""Changes that are no larger than this are sent to all tasks, instead of a shuffle of the table."""


@dataclass(frozen=True)
class StagedChanges:
    """The changes of an epoch, in files of the job's storage."""

    url: str
    paths: tuple[str, ...]
    bytes: int
    keys: tuple[str, ...]
    """As the table has them."""


class ReadFiles(Protocol):
    """Reads files of a table, which are given by number."""

    def __call__(self, files: Sequence[int], columns: StructType) -> DataFrame:
        """Return these columns of all rows; FILE_NUMBER may be among them."""
        ...


@dataclass(frozen=True)
class RewrittenTable:
    """The files of a version of the table that may hold a changed key, numbered from 0."""

    access: StoreAccess
    """To the folder under which new files are written."""
    columns: StructType
    sizes: tuple[int, ...]
    """The bytes of each file."""
    read: ReadFiles


def parts_reader(spark: SparkSession, url: str, parts: Sequence[FilePart]) -> ReadFiles:
    """Return what reads files whose columns are found by name."""

    def read(files: Sequence[int], columns: StructType) -> DataFrame:
        numbered = [
            dataclasses.replace(
                parts[each], values={**parts[each].values, FILE_NUMBER: pa.scalar(each)}
            )
            for each in files
        ]
        return read_stored(spark, url, numbered, columns, _tasks(spark), missing=gone_from_table)

    return read


def stage_changes(
    rows: DataFrame,
    keys: Sequence[str],
    url: str,
    prefix: str,
    require: RequireRows = any_rows,
) -> StagedOutput:
    """Stage the net changes of a changelog as files named `{prefix}-{unique}.parquet`."""
    names = (*keys,)
    changes = net_rows(rows, names)

    def describe(facts: FileFacts, _values: PartitionValues) -> Mapping[str, JsonValue]:
        return {KEY_RANGES: ranges_as_json(facts.statistics(), facts.rows, names)}

    schema = _nullable(to_arrow_schema(changes.schema, timezone="UTC"))
    layout = FileLayout(schema, describe, require=require, compression="lz4")
    return write_files(changes, url, prefix, layout)


def apply_changes(
    spark: SparkSession,
    changes: StagedChanges,
    table: RewrittenTable,
    prefix: str,
    layout: FileLayout,
) -> tuple[StagedOutput, tuple[int, ...]]:
    """Write new files for the changes. Return them, and the numbers of the files that they replace."""
    staged = _changes(spark, changes, table.columns)
    replaced = affected_files(changes, table, staged)
    rows = staged.where(f"NOT {IS_DELETED}").drop(IS_DELETED)
    if replaced:
        stored = table.read(replaced, table.columns)
        rows = _matched(stored, staged, changes, "left_anti").unionByName(rows)
    size = changes.bytes + sum(table.sizes[each] for each in replaced)
    files = max(1, math.ceil(size / layout.target_bytes))
    output = write_files(
        rows.coalesce(files), table.access.url, prefix, layout, access=table.access
    )
    return output, replaced


def affected_files(
    changes: StagedChanges, table: RewrittenTable, staged: DataFrame
) -> tuple[int, ...]:
    """Return the numbers of the files that hold a changed key."""
    if not table.sizes:
        return ()
    keys = [each for each in table.columns if each.name in changes.keys]
    columns = StructType([*keys, StructField(FILE_NUMBER, LongType())])
    stored = table.read(range(len(table.sizes)), columns)
    found = _matched(stored, staged, changes, "left_semi").select(FILE_NUMBER).distinct().collect()
    return tuple(sorted(row[0] for row in found))


def _changes(spark: SparkSession, changes: StagedChanges, columns: StructType) -> DataFrame:
    marked = StructType([*columns, StructField(IS_DELETED, BooleanType())])
    parts = [FilePart(each, {}) for each in changes.paths]
    rows = read_stored(spark, changes.url, parts, marked, _tasks(spark), missing=gone_from_state)
    if len({each.rpartition("/")[0] for each in changes.paths}) == 1:
        return rows
    # Several INSERTs into one table, each with its own changes: a row outlasts a deletion.
    names = [each.name for each in marked]
    row = "struct(" + ", ".join(f"`{each}`" for each in (IS_DELETED, *names[:-1])) + ")"
    by_key = rows.groupBy(*(f"`{each}`" for each in changes.keys)).agg(
        F.expr(f"min_by({row}, IF({IS_DELETED}, 1, 0)) AS row")
    )
    return by_key.selectExpr(*(f"row.`{each}`" for each in names))


def _matched(stored: DataFrame, staged: DataFrame, changes: StagedChanges, how: str) -> DataFrame:
    renamed = [f"__key_{number}" for number in range(len(changes.keys))]
    keys = staged.select(
        *(F.col(f"`{key}`").alias(name) for key, name in zip(changes.keys, renamed, strict=True))
    )
    if changes.bytes <= _BROADCAST_BYTES:
        keys = F.broadcast(keys)
    # Keys may be null: a group of rows without a value is a row of the result.
    same: list[Column] = [
        F.col(f"`{key}`").eqNullSafe(F.col(name))
        for key, name in zip(changes.keys, renamed, strict=True)
    ]
    condition = same[0]
    for each in same[1:]:
        condition = condition & each
    return stored.join(keys, condition, how)


def _tasks(spark: SparkSession) -> int:
    return int(spark.sparkContext.defaultParallelism)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([each.with_nullable(True) for each in schema])
