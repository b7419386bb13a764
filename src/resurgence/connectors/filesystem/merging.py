"""The contents of rolled files: parts merged into one object, and files cut to their first rows.

Lines are concatenated and cut as bytes; gzip allows that for its members, too. Files of other
formats are decoded and encoded again. Parts are merged by Spark tasks, one per file; where there is
no Spark, as in a rollback from the command line, files are cut in this process.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.filesystem.records import Kept
from resurgence.connectors.filesystem.rolling import Part
from resurgence.connectors.formats.contract import FileEncoder
from resurgence.errors import ObjectMissing, SinkError
from resurgence.storage.access import StoreAccess
from resurgence.storage.object_store import ObjectStore, task_store
from resurgence.storage.parallel import in_parallel
from resurgence.storage.parquet import EncodedFile, create_new

_MERGED = StructType([StructField("number", LongType()), StructField("path", StringType())])
_READ_AT_ONCE = 32

Batches = Callable[[bytes], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Merger:
    """Merges the parts of one sink."""

    encoder_of: Callable[[], FileEncoder]
    batches: Batches | None
    """As in Format: None if files are concatenated."""

    def merge(
        self,
        spark: SparkSession | None,
        store: ObjectStore,
        files: Sequence[Sequence[Part]],
        prefix: str,
    ) -> list[str]:
        """Merge the parts of each file into one object. Return their paths. A single part is
        returned as it is. Without Spark, they are merged in this process.
        """
        many = [number for number, parts in enumerate(files) if len(parts) > 1]
        paths = [parts[0].path for parts in files]
        if many and spark is None:
            for number in many:
                paths[number] = self._merged(store, files[number], prefix)
        elif many and spark is not None:
            task = self._task(store.access, [files[number] for number in many], prefix)
            rows = spark.range(0, len(many), 1, len(many)).mapInArrow(task, _MERGED).collect()
            for row in rows:
                paths[many[row.number]] = row.path
        return paths

    def cut(self, data: bytes, kept: Kept) -> bytes | None:
        """Return the first rows of a file; None if it has no others. Raises SinkError if it has
        fewer.
        """
        if self.batches is None:
            if len(data) < kept.bytes:
                raise _shorter(kept)
            return None if len(data) == kept.bytes else data[: kept.bytes]
        encoder, rows = self.encoder_of(), 0
        is_longer = False
        for batch in self.batches(data):
            wanted = min(batch.num_rows, kept.rows - rows)
            is_longer = is_longer or wanted < batch.num_rows
            if wanted:
                encoder.add(batch.slice(0, wanted))
                rows += wanted
        if rows < kept.rows:
            raise _shorter(kept)
        encoded = encoder.finish() if is_longer else None
        return None if encoded is None else encoded.data

    def _task(
        self, access: StoreAccess, files: Sequence[Sequence[Part]], prefix: str
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    path = self._merged(task_store(access), files[number], prefix)
                    yield pa.RecordBatch.from_pydict({"number": [number], "path": [path]})

        return run

    def _merged(self, store: ObjectStore, parts: Sequence[Part], prefix: str) -> str:
        pieces = _pieces(store, parts)
        encoded = (
            EncodedFile(b"".join(pieces), sum(each.rows for each in parts))
            if self.batches is None
            else _encoded(self.encoder_of(), self.batches, [*pieces], store.url)
        )
        expected = sum(each.rows for each in parts)
        if encoded.rows != expected:
            raise SinkError(
                f"staged output in {store.url} has {encoded.rows} rows instead of {expected}",
                hint="Roll the job back to an earlier checkpoint. Staged output was changed by"
                " hand.",
            )
        path = f"{prefix}-{uuid.uuid4().hex[:12]}"
        create_new(store, path, encoded.data)
        return path


def _encoded(
    encoder: FileEncoder, batches: Batches, pieces: Sequence[bytes], url: str
) -> EncodedFile:
    """Encode all rows of some files into one. Columns that a file lacks are null in its rows."""
    try:
        schemas = [next(batches(each)).schema for each in pieces]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        for each in pieces:
            for batch in batches(each):
                encoder.add(_conformed(batch, schema))
    except pa.ArrowException as error:
        raise SinkError(
            f"rows that are staged in {url} have columns of other types than later rows, and"
            f" cannot be merged into one file: {error}",
            hint="Undo the change of the table, stop the job so that the rows are written, and"
            " change it again.",
        ) from error
    encoded = encoder.finish()
    return encoded or EncodedFile(b"", 0)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    tables = [schema.empty_table(), pa.Table.from_batches([batch])]
    merged = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    return merged.to_batches()[0]


def _pieces(store: ObjectStore, parts: Sequence[Part]) -> Iterator[bytes]:
    """Yield the parts in their order, read a few at a time."""
    for start in range(0, len(parts), _READ_AT_ONCE):
        some = parts[start : start + _READ_AT_ONCE]
        try:
            yield from in_parallel([functools.partial(store.read, each.path) for each in some])
        except ObjectMissing as error:
            raise SinkError(
                f"staged output of {store.url} is missing: {error.message}",
                hint="Roll the job back to an earlier checkpoint. Staged output was removed by"
                " hand.",
            ) from error


def _shorter(kept: Kept) -> SinkError:
    return SinkError(
        f"the file {kept.name} has fewer rows than were written to it, and cannot be rolled back",
        hint="Restore it from a backup, or delete it, and roll back again.",
    )
