"""Staging of file sinks: each Spark task writes its own objects and returns what it wrote.

No listing, no committer, no rename in the data path; a task that runs twice leaves an object that
nothing refers to.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.formats.contract import FileEncoder, Format, WriteSettings
from resurgence.errors import ConfigError
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import task_store
from resurgence.storage.parquet import ROLL_BYTES, create_new

_WRITTEN = StructType(
    [
        StructField("path", StringType()),
        StructField("rows", LongType()),
        StructField("bytes", LongType()),
    ]
)


def stage_files(
    rows: DataFrame, file_format: Format, url: str, prefix: str, settings: WriteSettings
) -> StagedOutput:
    """Write rows as objects named `{prefix}-{unique}` under a URL, one or more per task that has
    rows.
    """
    if file_format.encoder is None:
        raise ConfigError(f"format '{file_format.name}' cannot be written")
    writer = _writer(store_access(url), prefix, file_format.encoder)
    written = file_format.prepared(rows, settings).mapInArrow(writer, _WRITTEN).collect()
    files = tuple(
        sorted((StagedFile(**row.asDict()) for row in written), key=lambda each: each.path)
    )
    return StagedOutput(rows=sum(each.rows for each in files), files=files)


def _writer(
    access: StoreAccess, prefix: str, encoder_of: Callable[[], FileEncoder]
) -> ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = encoder_of()
        for batch in batches:
            if batch.num_rows:
                encoder.add(batch)
            if encoder.size > ROLL_BYTES:
                yield from _stored(encoder, access, prefix)
                encoder = encoder_of()
        yield from _stored(encoder, access, prefix)

    return write


def _stored(encoder: FileEncoder, access: StoreAccess, prefix: str) -> Iterator[pa.RecordBatch]:
    encoded = encoder.finish()
    if encoded is not None:
        path = f"{prefix}-{uuid.uuid4().hex[:12]}"
        create_new(task_store(access), path, encoded.data)
        yield pa.RecordBatch.from_pydict(
            {"path": [path], "rows": [encoded.rows], "bytes": [len(encoded.data)]}
        )
