"""How file sinks stage: each Spark task writes its own objects and returns what it wrote.

No listing, no committer, no rename in the data path; a task that is run twice leaves an object that
no one names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from enum import StrEnum

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.formats import debezium_json, json_lines
from resurgence.connectors.formats.json_lines import TimestampFormat
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.object_store import shared_store
from resurgence.storage.parquet import ParquetEncoder, create_new

ROLL_BYTES = 128 * 1024 * 1024
"""A task begins another object when one has grown to this size: it bounds a task's memory."""

_WRITTEN = StructType(
    [
        StructField("path", StringType()),
        StructField("rows", LongType()),
        StructField("bytes", LongType()),
    ]
)


class FileFormat(StrEnum):
    """What file sinks can write."""

    PARQUET = "parquet"
    JSON = "json"
    DEBEZIUM_JSON = "debezium_json"

    @property
    def suffix(self) -> str:
        """How names of such files end."""
        return "parquet" if self is FileFormat.PARQUET else "json"


def stage_files(
    rows: DataFrame,
    file_format: FileFormat,
    url: str,
    prefix: str,
    keys: Sequence[str] = (),
    timestamps: TimestampFormat = TimestampFormat.RFC3339,
) -> StagedOutput:
    """Write rows as objects named `{prefix}-{unique}` under a URL, one or more per task that has
    rows. With `keys`, changes are paired by them.
    """
    if file_format is FileFormat.PARQUET:
        written = rows.mapInArrow(_parquet_writer(url, prefix), _WRITTEN).collect()
    else:
        lines = (
            debezium_json.render(rows, keys)
            if file_format is FileFormat.DEBEZIUM_JSON
            else json_lines.render(rows, timestamps)
        )
        written = lines.mapInArrow(_json_writer(url, prefix), _WRITTEN).collect()
    files = tuple(
        sorted((StagedFile(**row.asDict()) for row in written), key=lambda each: each.path)
    )
    return StagedOutput(rows=sum(each.rows for each in files), files=files)


def _parquet_writer(url: str, prefix: str) -> ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = ParquetEncoder()
        for batch in batches:
            if batch.num_rows:
                encoder.add(batch)
            if encoder.size > ROLL_BYTES:
                yield from _store_parquet(encoder, url, prefix)
                encoder = ParquetEncoder()
        yield from _store_parquet(encoder, url, prefix)

    return write


def _store_parquet(encoder: ParquetEncoder, url: str, prefix: str) -> Iterator[pa.RecordBatch]:
    encoded = encoder.finish()
    if encoded is not None:
        yield _store(url, prefix, encoded.data, encoded.rows)


def _json_writer(url: str, prefix: str) -> ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces: list[bytes] = []
        rows = size = 0
        for batch in batches:
            pieces.append(joined_text(batch.column(json_lines.LINE)))
            rows += batch.num_rows
            size += len(pieces[-1])
            if size > ROLL_BYTES:
                yield _store(url, prefix, b"".join(pieces), rows)
                pieces, rows, size = [], 0, 0
        if rows:
            yield _store(url, prefix, b"".join(pieces), rows)

    return write


def joined_text(lines: pa.Array) -> bytes:
    """All strings of an array, one after the other: they lie like that in memory already."""
    if len(lines) == 0:
        return b""
    large = lines.cast(pa.large_string())
    _, offsets, data = large.buffers()
    positions = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[positions[large.offset] : positions[large.offset + len(large)]])


def _store(url: str, prefix: str, data: bytes, rows: int) -> pa.RecordBatch:
    path = f"{prefix}-{uuid.uuid4().hex[:12]}"
    create_new(shared_store(url), path, data)
    return pa.RecordBatch.from_pydict({"path": [path], "rows": [rows], "bytes": [len(data)]})
