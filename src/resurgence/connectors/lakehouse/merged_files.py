"""Merges data files: Spark's tasks write the rows of several files as one, in the table's order.

Each merge is done by one task, so that its rows need no shuffle. A column with the number of the
merge is a partition field of what is written, and no column of it: so files never mix merges, and
the commit can tell whose they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pyarrow as pa
from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.lakehouse.data_files import (
    FileLayout,
    PartitionValues,
    SortField,
    write_files,
)
from resurgence.connectors.lakehouse.table_file import FileFacts
from resurgence.storage.access import StoreAccess

MERGE = "__merge"
"""The column with the number of a row's merge."""


def merging_tasks(spark: SparkSession, merges: int) -> int:
    """Return how many tasks merge: at most half of the cores, because epochs need the others."""
    return max(1, min(merges, int(spark.sparkContext.defaultParallelism) // 2))


def write_merged(
    rows: DataFrame,
    url: str,
    prefix: str,
    layout: FileLayout,
    *,
    access: StoreAccess | None = None,
) -> dict[int, tuple[StagedFile, ...]]:
    """Write rows, which have the column MERGE, as files named `{prefix}-{unique}.parquet`. Return
    the files by merge. All rows of a merge must be in one partition of the DataFrame. `access` is
    as in `write_files`.
    """
    output = write_files(rows, url, prefix, _by_merge(layout), access=access)
    found: dict[int, tuple[StagedFile, ...]] = {}
    for each in output.files:
        details = {name: value for name, value in each.details.items() if name != MERGE}
        number = each.details[MERGE]
        assert isinstance(number, int)
        file = each.model_copy(update={"details": details})
        found[number] = (*found.get(number, ()), file)
    return found


def _by_merge(layout: FileLayout) -> FileLayout:
    """Return a layout whose last partition field is the merge."""

    def partition_of(rows: pa.RecordBatch) -> pa.RecordBatch:
        partitions = layout.partition_of(rows)
        names = [f"p{number}" for number in range(partitions.num_columns)]
        columns = [*partitions.columns, rows.column(MERGE)]
        return pa.RecordBatch.from_arrays(columns, names=[*names, MERGE])

    def describe(facts: FileFacts, values: PartitionValues) -> Mapping[str, JsonValue]:
        *partition, merge = values
        assert isinstance(merge, int)
        return {**layout.describe(facts, tuple(partition)), MERGE: merge}

    # One merge after the other, so that a task has one file open.
    order = (SortField(MERGE), *layout.sorted_by) if layout.sorted_by else ()
    return dataclasses.replace(
        layout, partition_of=partition_of, describe=describe, sorted_by=order
    )
