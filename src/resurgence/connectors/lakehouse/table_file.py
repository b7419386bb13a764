"""One data file of a lakehouse table while it is written, and its statistics.

Statistics are taken from the file's own footer. Arrow leaves NaN out of minimum and maximum, and
formats differ in whether bounds may do so; so NaN is counted as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ROW_GROUP_ROWS = 500_000
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""A row group ends when it has that many rows, or bytes before they are encoded."""


class ValueKind(StrEnum):
    """The types whose bounds need care."""

    TEXT = "text"
    FLOAT = "float"
    OTHER = "other"


@dataclass(frozen=True)
class ColumnStatistics:
    """A column of a file that is not nested in lists or maps."""

    path: tuple[str, ...]
    """Its name, after the names of the structs around it."""
    nulls: int
    nans: int = 0
    """Of columns at the top level."""
    bounds: tuple[Any, Any] | None = None
    """Its minimum and maximum, without NaN, as Python has them. None if it has no values, or none
    that can be compared.
    """
    kind: ValueKind = ValueKind.OTHER


@dataclass(frozen=True)
class FileFacts:
    """A complete file."""

    data: bytes
    metadata: pq.FileMetaData
    nans: dict[str, int]
    """How many values are NaN, by column at the top level; columns without any are left out."""

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows)

    def statistics(self) -> Iterator[ColumnStatistics]:
        """Return the statistics of each column, in the order of the file."""
        groups = [self.metadata.row_group(each) for each in range(self.metadata.num_row_groups)]
        for index in range(self.metadata.num_columns):
            if self.metadata.schema.column(index).max_repetition_level:
                continue
            chunks = [each.column(index) for each in groups]
            path = tuple(chunks[0].path_in_schema.split("."))
            known = [each.statistics for each in chunks]
            if any(each is None or not each.has_null_count for each in known):
                continue
            bounded = [each for each in known if each.has_min_max]
            # A row group without bounds has only nulls, or values that cannot be compared.
            is_bounded = bounded and all(each.has_min_max or not each.num_values for each in known)
            yield ColumnStatistics(
                path,
                nulls=sum(each.null_count for each in known),
                nans=self.nans.get(path[0], 0) if len(path) == 1 else 0,
                bounds=(min(each.min for each in bounded), max(each.max for each in bounded))
                if is_bounded
                else None,
                kind=_kind(self.metadata.schema.column(index)),
            )


def _kind(column: pq.ColumnSchema) -> ValueKind:
    if column.physical_type in ("FLOAT", "DOUBLE"):
        return ValueKind.FLOAT
    return ValueKind.TEXT if column.logical_type.type == "STRING" else ValueKind.OTHER


class TableFile:
    """Collects rows into one file. It has at least one row."""

    def __init__(
        self, schema: pa.Schema, compression: str, row_group_bytes: int = ROW_GROUP_BYTES
    ) -> None:
        self._schema = schema
        self._row_group_bytes = row_group_bytes
        self._floats = [each.name for each in schema if pa.types.is_floating(each.type)]
        self._buffer = pa.BufferOutputStream()
        self._footer: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._buffer,
            schema,
            compression=compression,
            write_page_checksum=True,
            metadata_collector=self._footer,
        )
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = self._encoded_bytes = 0
        self._nans: dict[str, int] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes in memory: encoded ones, and those of the row group that is not."""
        return int(self._buffer.tell()) + self._pending_bytes

    @property
    def size(self) -> int:
        """The size of the file if it ended here. Rows that are not encoded are counted as they are
        before the first row group, and then as those were encoded.
        """
        encoded = int(self._buffer.tell())
        ratio = encoded / self._encoded_bytes if self._encoded_bytes else 1.0
        return encoded + int(self._pending_bytes * ratio)

    def add(self, rows: pa.RecordBatch) -> None:
        for name in self._floats:
            if nans := pc.sum(pc.is_nan(rows.column(name))).as_py():
                self._nans[name] = self._nans.get(name, 0) + nans
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        if self._pending_rows >= _ROW_GROUP_ROWS or self._pending_bytes >= self._row_group_bytes:
            self._write_row_group()

    def finish(self) -> FileFacts:
        if self._pending:
            self._write_row_group()
        self._writer.close()
        return FileFacts(self._buffer.getvalue().to_pybytes(), self._footer[0], self._nans)

    def _write_row_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._pending, self._schema))
        self._encoded_bytes += self._pending_bytes
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
