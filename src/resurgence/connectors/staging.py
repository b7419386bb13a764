"""Staging of file sinks: each Spark task writes its own objects and returns what it wrote.

No listing, no committer, no rename in the data path; a task that runs twice leaves an object that
nothing refers to. The rows of an object have the same folder, if the sink has several.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.formats.contract import VALUE, FileEncoder, Format, WriteSettings
from resurgence.errors import ConfigError
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import task_store
from resurgence.storage.parquet import ROLL_BYTES, create_new

WRITTEN = StructType(
    [
        StructField("path", StringType()),
        StructField("rows", LongType()),
        StructField("bytes", LongType()),
        StructField("folder", StringType()),
    ]
)
"""What a task returns of each object."""


@dataclass(frozen=True)
class FileLayout:
    """How rows become files."""

    format: Format
    settings: WriteSettings[Any]
    encoder: Callable[[], FileEncoder] | None = None
    """By default that of the format."""
    folder: str | None = None
    """The column of the rows with the folder that they belong to; no part of the record."""

    @property
    def encoder_of(self) -> Callable[[], FileEncoder]:
        chosen = self.encoder or self.format.encoder
        if chosen is None:
            raise ConfigError(f"format '{self.format.name}' cannot be written")
        return chosen

    def rendered(self, rows: DataFrame) -> DataFrame:
        """Return rows as the encoder takes them, and their folder."""
        if self.format.writer is None:
            return rows
        passed = (self.folder,) if self.folder is not None else ()
        records = self.format.writer(replace(self.settings, passed=passed)).render(rows)
        return as_lines(records, self.format, passed) if self.format.is_line_based else records


def stage_files(rows: DataFrame, layout: FileLayout, url: str, prefix: str) -> StagedOutput:
    """Write rows as objects named `{prefix}-{unique}` under a URL, one or more per folder and task
    that has rows.
    """
    writer = _writer(store_access(url), prefix, layout.encoder_of, layout.folder)
    written = layout.rendered(rows).mapInArrow(writer, WRITTEN).collect()
    files = tuple(
        sorted((StagedFile(**row.asDict()) for row in written), key=lambda each: each.path)
    )
    return StagedOutput(rows=sum(each.rows for each in files), files=files)


def rehearse_files(rows: DataFrame, layout: FileLayout) -> DataFrame:
    """Return rows as they would be staged. Computing it encodes them, and writes nothing."""
    encoder_of, folder = layout.encoder_of, layout.folder

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = encoder_of()
        for batch in batches:
            if batch.num_rows:
                encoder.add(batch.drop_columns([folder]) if folder is not None else batch)
        encoder.finish()
        yield from ()

    return layout.rendered(rows).mapInArrow(encode, WRITTEN)


def as_lines(records: DataFrame, file_format: Format, passed: tuple[str, ...] = ()) -> DataFrame:
    """Return rendered records as lines, each ending in a newline, and the columns `passed`."""
    line = f"concat({VALUE}, '\\n')"
    if file_format.is_free_text:
        reason = f"a record of format {file_format.name} is null or contains a newline"
        is_line = f"coalesce(NOT contains({VALUE}, '\\n'), false)"
        line = f"IF({is_line}, {line}, raise_error('{reason}, and cannot be a line'))"
    return records.selectExpr(f"{line} AS {VALUE}", *(f"`{each}`" for each in passed))


def _writer(
    access: StoreAccess,
    prefix: str,
    encoder_of: Callable[[], FileEncoder],
    folder: str | None = None,
) -> ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoders: dict[str, FileEncoder] = {}
        for batch in batches:
            for name, rows in _by_folder(batch, folder):
                if name not in encoders:
                    encoders[name] = encoder_of()
                encoders[name].add(rows)
            while sum(each.size for each in encoders.values()) > ROLL_BYTES:
                largest = max(encoders, key=lambda each: encoders[each].size)
                yield from _stored(encoders.pop(largest), access, prefix, largest)
        for name, encoder in encoders.items():
            yield from _stored(encoder, access, prefix, name)

    return write


def _by_folder(batch: pa.RecordBatch, folder: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch by the folder of its rows."""
    if not batch.num_rows:
        return
    if folder is None:
        yield "", batch
        return
    names = batch.column(folder).dictionary_encode()
    rows = batch.drop_columns([folder])
    for index, name in enumerate(names.dictionary.to_pylist()):
        yield name, rows.filter(pc.equal(names.indices, index))


def _stored(
    encoder: FileEncoder, access: StoreAccess, prefix: str, folder: str
) -> Iterator[pa.RecordBatch]:
    encoded = encoder.finish()
    if encoded is not None:
        path = f"{prefix}-{uuid.uuid4().hex[:12]}"
        create_new(task_store(access), path, encoded.data)
        yield pa.RecordBatch.from_pydict(
            {
                "path": [path],
                "rows": [encoded.rows],
                "bytes": [len(encoded.data)],
                "folder": [folder],
            }
        )
