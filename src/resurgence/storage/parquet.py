"""Parquet objects written and read by Spark tasks: Arrow batches in, whole objects out.

A file is encoded in memory and created in one request, so there is no listing, no rename and no
partially written object. A writer begins another file when one has grown to `ROLL_BYTES`, which
bounds its memory. Every page has a checksum, which is verified when the page is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resurgence.errors import DamagedState, ObjectMissing, StorageError
from resurgence.storage.object_store import ObjectStore

ROLL_BYTES = 128 * 1024 * 1024
"""A task begins another file when one has grown to this size."""
ROW_GROUP_ROWS = 100_000
ROW_GROUP_BYTES = 32 * 1024 * 1024
"""A row group ends when it has that many rows, or bytes before they are encoded."""


@dataclass(frozen=True)
class EncodedFile:
    """A complete Parquet file."""

    data: bytes
    rows: int

    @property
    def digest(self) -> str:
        return digest_of(self.data)


class ParquetEncoder:
    """Collects batches into one Parquet file."""

    def __init__(self, repeating: tuple[str, ...] = (), *, compression: str = "lz4") -> None:
        """`repeating`: columns with few distinct values. `compression`: the name of the codec."""
        self._repeating = repeating
        self._compression = compression
        self._buffer = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._rows = 0

    @property
    def size(self) -> int:
        """Bytes buffered so far."""
        return int(self._buffer.tell()) + self._pending_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_rows >= ROW_GROUP_ROWS or self._pending_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self) -> EncodedFile | None:
        """Return the file, or None if no batch was added."""
        if self._pending:
            self._write_row_group()
        if self._writer is None:
            return None
        self._writer.close()
        return EncodedFile(self._buffer.getvalue().to_pybytes(), self._rows)

    def _write_row_group(self) -> None:
        rows = pa.Table.from_batches(self._pending)
        if self._writer is None:
            # Fast to write and to read; dictionaries only for values that are long or repeat.
            text = [each.name for each in rows.schema if not pa.types.is_primitive(each.type)]
            self._writer = pq.ParquetWriter(
                self._buffer,
                rows.schema,
                compression=self._compression,
                use_dictionary=[*text, *self._repeating],
                write_page_checksum=True,
            )
        self._writer.write_table(rows)
        self._rows += rows.num_rows
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


def time_bounds(batch: pa.RecordBatch, column: str) -> tuple[int, int]:
    """Return the minimum and the maximum of an integer column."""
    bounds = pc.min_max(batch.column(column)).as_py()
    return int(bounds["min"]), int(bounds["max"])


def digest_of(data: bytes) -> str:
    """Return the digest of a file's bytes."""
    return hashlib.sha256(data).hexdigest()[:32]


def whole_table(data: bytes) -> pa.Table:
    """Return the rows of a small file, with its page checksums verified. Without Arrow's thread
    pool, whose threads can abort a process that exits right after it has read.
    """
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    return file.read(use_threads=False)


def all_batches(data: bytes) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a file, with its page checksums verified."""
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    yield from file.iter_batches(use_threads=False)


def read_verified(store: ObjectStore, path: str, size: int, digest: str) -> bytes:
    """Return the bytes of a file. Size and digest are verified before anything is decoded, because
    a file that was altered outside its pages can crash the reader.
    """
    try:
        data = store.read(path)
    except ObjectMissing as error:
        raise DamagedState(f"state file {path} is missing", path=path) from error
    if len(data) != size:
        raise DamagedState(f"state file {path} has {len(data)} bytes instead of {size}", path=path)
    if digest_of(data) != digest:
        raise DamagedState(f"state file {path} does not match its digest", path=path)
    return data


def row_groups(data: bytes, path: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a verified file, one batch per row group."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        for index in range(file.num_row_groups):
            size = file.metadata.row_group(index).num_rows
            yield from file.iter_batches(size, row_groups=[index], use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> DamagedState:
    reason = str(error).split("\n", 1)[0]
    return DamagedState(f"state file {path} cannot be read: {reason}", path=path)


def read_bins(
    store: ObjectStore,
    path: str,
    size: int,
    digest: str,
    column: str,
    start: int,
    end: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file whose `column` is in [start, end). Row groups outside that range are
    not decoded.
    """
    data = read_verified(store, path, size, digest)
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        position = file.schema_arrow.get_field_index(column)
        for index in range(file.num_row_groups):
            statistics = file.metadata.row_group(index).column(position).statistics
            if statistics is not None and (statistics.max < start or statistics.min >= end):
                continue
            for batch in file.iter_batches(row_groups=[index]):
                values = batch.column(column)
                in_range = pc.and_(pc.greater_equal(values, start), pc.less(values, end))
                yield batch.filter(in_range)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def create_new(store: ObjectStore, path: str, data: bytes) -> None:
    """Create an object whose name is unique. If it exists, the client has resent a create whose
    response was lost, and the object is our own.
    """
    if not store.create(path, data) and store.read(path) != data:
        raise StorageError(f"{store.url}/{path} already exists")
