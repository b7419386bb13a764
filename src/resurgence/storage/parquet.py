"""Parquet objects written and read by Spark tasks: Arrow batches in, whole objects out.

A file is made in memory and created in one request, so there is no listing, no rename and no
half-written object. Every page carries a checksum, which is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resurgence.errors import DamagedState, ObjectMissing, StorageError
from resurgence.storage.object_store import ObjectStore


@dataclass(frozen=True)
class EncodedFile:
    """A finished Parquet file."""

    data: bytes
    rows: int


class ParquetEncoder:
    """Collects batches into one Parquet file."""

    def __init__(self, repeating: tuple[str, ...] = ()) -> None:
        """`repeating` are columns of few values."""
        self._repeating = repeating
        self._buffer = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    @property
    def size(self) -> int:
        """Bytes encoded up to now."""
        return int(self._buffer.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch as a row group."""
        if self._writer is None:
            # Fast to write and to read; dictionaries only where values are long and repeat.
            text = [each.name for each in batch.schema if not pa.types.is_primitive(each.type)]
            self._writer = pq.ParquetWriter(
                self._buffer,
                batch.schema,
                compression="lz4",
                use_dictionary=[*text, *self._repeating],
                write_page_checksum=True,
            )
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def finish(self) -> EncodedFile | None:
        """The file, or None if nothing was added."""
        if self._writer is None:
            return None
        self._writer.close()
        return EncodedFile(self._buffer.getvalue().to_pybytes(), self._rows)


def time_bounds(batch: pa.RecordBatch, column: str) -> tuple[int, int]:
    """The least and the greatest value of a column of whole numbers."""
    bounds = pc.min_max(batch.column(column)).as_py()
    return int(bounds["min"]), int(bounds["max"])


def read_bins(
    store: ObjectStore, path: str, expected_bytes: int, column: str, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a file whose `column` is in [start, end). Row groups out of that range are not
    decoded.
    """
    try:
        data = store.read(path)
    except ObjectMissing as error:
        raise DamagedState(f"state file {path} is missing", path=path) from error
    if len(data) != expected_bytes:
        raise DamagedState(
            f"state file {path} has {len(data)} bytes instead of {expected_bytes}", path=path
        )
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        position = file.schema_arrow.get_field_index(column)
        for index in range(file.num_row_groups):
            statistics = file.metadata.row_group(index).column(position).statistics
            if statistics is not None and (statistics.max < start or statistics.min >= end):
                continue
            for batch in file.iter_batches(row_groups=[index]):
                values = batch.column(column)
                wanted = pc.and_(pc.greater_equal(values, start), pc.less(values, end))
                yield batch.filter(wanted)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        raise DamagedState(f"state file {path} cannot be read: {reason}", path=path) from error


def create_new(store: ObjectStore, path: str, data: bytes) -> None:
    """Create an object whose name no one else can have."""
    if not store.create(path, data):
        raise StorageError(f"{store.url}/{path} exists already")
