"""Upserts of an Iceberg table by copy-on-write: which files may hold changed keys, and what an attempt
to replace them changes.

Which files these are depends on the snapshot, so all of it is done anew when a commit is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.iceberg.reading.file_reader import FilePiece, read_pieces
from resurgence.connectors.iceberg.reading.table_files import (
    accesses,
    declared_columns,
    own_columns,
    piece_of,
    stored_path,
)
from resurgence.connectors.iceberg.writing.commit import TableChange
from resurgence.connectors.iceberg.writing.data_files import added_file, data_access, location_of
from resurgence.connectors.lakehouse.copy_on_write import (
    FILE_NUMBER,
    KEY_RANGES,
    ReadFiles,
    RewrittenTable,
    StagedChanges,
    apply_changes,
)
from resurgence.connectors.lakehouse.data_files import FileLayout, write_files
from resurgence.connectors.lakehouse.pruning import ValueRange, may_hold, merged_ranges
from resurgence.connectors.lakehouse.stored_rows import gone_from_table
from resurgence.errors import UserError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

_NUMBER_ID = -1
"""Of FILE_NUMBER: no column of a table has it."""


@dataclass
class Upsert:
    """One attempt to apply the output of an epoch to a snapshot of a table."""

    spark: SparkSession
    table: Table
    keys: tuple[str, ...]
    prefix: str
    """How the paths of written files begin."""
    layout_of: Callable[[Sequence[str]], FileLayout]
    """Returns how rows with some columns become files."""

    def __post_init__(self) -> None:
        self._written: list[StagedFile] = []

    def apply(self, url: str, staged: Sequence[StagedFile]) -> TableChange:
        """Apply changes, which are staged under a URL."""
        tasks = self._candidates(staged)
        columns = own_columns(self.table)
        output, replaced = apply_changes(
            self.spark,
            StagedChanges(
                url,
                tuple(each.path for each in staged),
                sum(each.bytes for each in staged),
                self.keys,
            ),
            RewrittenTable(
                data_access(self.table),
                columns,
                tuple(each.file.file_size_in_bytes for each in tasks),
                self._reader(tasks),
            ),
            self.prefix,
            self.layout_of(columns.names),
        )
        removed = [tasks[each].file for each in replaced]
        return TableChange(self._added(output.files), removed, self.undo)

    def rewritten(self, stale: Sequence[StagedFile]) -> list[DataFile]:
        """Write staged data files again, as the table is now, each with its first rows only."""
        if not stale:
            return []
        pieces = [
            FilePiece(stored_path(location_of(each)), location_of(each), each.path, 0, each.rows)
            for each in stale
        ]
        rows = self._rows(pieces, own_columns(self.table))
        layout = self.layout_of(rows.columns)
        files = max(1, math.ceil(sum(each.bytes for each in stale) / layout.target_bytes))
        access = data_access(self.table)
        output = write_files(rows.coalesce(files), access.url, self.prefix, layout, access=access)
        return self._added(output.files)

    def undo(self) -> None:
        """Delete what was written."""
        for each in self._written:
            self.table.io.delete(location_of(each))
        self._written.clear()

    def _added(self, written: Sequence[StagedFile]) -> list[DataFile]:
        self._written += written
        return [added_file(self.table, each) for each in written]

    def _candidates(self, staged: Sequence[StagedFile]) -> list[FileScanTask]:
        """Return the files of the table that may hold a changed key."""
        ranges = [each.details.get(KEY_RANGES) for each in staged]
        known = [each if isinstance(each, dict) else {} for each in ranges]
        changed = merged_ranges(known, self.keys)
        try:
            tasks = [*self.table.scan().plan_files()]
        except ValueError as error:
            raise UserError(
                f"Iceberg table {'.'.join(self.table.name())} cannot be upserted: {error}",
                hint="Rewrite the table's data files, so that deletes are applied to them.",
            ) from error
        return [each for each in tasks if may_hold(changed, self._ranges(each.file))]

    def _ranges(self, file: DataFile) -> dict[str, ValueRange]:
        """Return what the metadata knows of the key columns in a file."""
        return {name: key_range(self.table, file, name) for name in self.keys}

    def _reader(self, tasks: Sequence[FileScanTask]) -> ReadFiles:
        """Return what reads files by their numbers, without the rows that are deleted."""
        pieces = [piece_of(self.table, each.file, each.delete_files) for each in tasks]

        def read(files: Sequence[int], columns: StructType) -> DataFrame:
            return self._rows([_numbered(pieces[each], each) for each in files], columns)

        return read

    def _rows(self, pieces: Sequence[FilePiece], columns: StructType) -> DataFrame:
        own = StructType([each for each in columns if each.name != FILE_NUMBER])
        found = declared_columns(self.table, own, gone_from_table)
        if own != columns:
            found = found.extended({FILE_NUMBER: _NUMBER_ID}, pa.int64())
        tasks = int(self.spark.sparkContext.defaultParallelism)
        return read_pieces(self.spark, pieces, accesses(self.table, pieces), found, columns, tasks)


def _numbered(piece: FilePiece, number: int) -> FilePiece:
    return dataclasses.replace(piece, shared={**piece.shared, _NUMBER_ID: pa.scalar(number)})


def key_range(table: Table, file: DataFile, name: str) -> ValueRange:
    """Return what the metadata of a file knows of a column."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import PrimitiveType

    field = table.schema().find_field(name)
    nulls = _count(file.null_value_counts, field.field_id)
    values = _count(file.value_counts, field.field_id)
    has_values = values is None or nulls is None or values > nulls
    low = (file.lower_bounds or {}).get(field.field_id)
    high = (file.upper_bounds or {}).get(field.field_id)
    is_nan = bool(_count(file.nan_value_counts, field.field_id))
    if low is None or high is None or is_nan or not isinstance(field.field_type, PrimitiveType):
        return ValueRange(None, None, nulls != 0, has_values)
    return ValueRange(
        _comparable(field.field_type, from_bytes(field.field_type, low)),
        _comparable(field.field_type, from_bytes(field.field_type, high)),
        nulls != 0,
        has_values,
    )


def _count(counts: Mapping[int, int] | None, field_id: int) -> int | None:
    return None if counts is None else counts.get(field_id)


def _comparable(kind: object, value: object) -> object:
    """Return a bound as Arrow has it, or None for types whose values are not compared."""
    from pyiceberg.types import (
        DateType,
        DecimalType,
        IntegerType,
        LongType,
        StringType,
        TimestampType,
        TimestamptzType,
    )
    from pyiceberg.utils.datetime import days_to_date, micros_to_timestamp, micros_to_timestamptz

    match kind:
        case IntegerType() | LongType() | StringType() | DecimalType():
            return value
        case DateType():
            return days_to_date(value) if isinstance(value, int) else value
        case TimestampType():
            return micros_to_timestamp(value) if isinstance(value, int) else value
        case TimestamptzType():
            return micros_to_timestamptz(value) if isinstance(value, int) else value
        case _:
            return None
