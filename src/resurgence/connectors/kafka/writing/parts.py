"""The staged parts of an epoch: messages in Arrow files in the job's storage, in the order in which
they will be produced.

A Spark task that stages rows is a lane. It cuts its messages into parts that are bounded in bytes,
because a part is one transaction, which must be short. The parts of a lane are produced one after
the other, lanes in parallel. A key is in one lane only, so the order of its messages is kept.

The name of a part ends with its lane and its number in it: `…-00003-00000-9f86d081884c`.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.kafka.topics import MessageLimit
from resurgence.errors import MessageRefused
from resurgence.spark_tasks import ArrowFunction, current_subtask
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import ObjectStore, task_store
from resurgence.storage.parquet import create_new

PART_BYTES = 16 * 1024 * 1024
PART_ROWS = 500_000
_MESSAGE_OVERHEAD = 128
"""Bytes of a batch and a record around a message that is alone in its batch, at most."""
_SHOWN_KEY = 200
_STAGED = StructType(
    [
        StructField("path", StringType()),
        StructField("rows", LongType()),
        StructField("bytes", LongType()),
    ]
)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class Part:
    """One staged part: the first rows of an object."""

    path: str
    rows: int


def lanes_of(parts: Sequence[Part]) -> tuple[tuple[Part, ...], ...]:
    """Return the parts of each lane. Parts are listed by lane, in their order; the number of a lane
    is its position, so that it depends on the list alone.
    """
    grouped = itertools.groupby(parts, key=lambda each: each.path.rsplit("-", 2)[0])
    return tuple(tuple(each) for _, each in grouped)


def most_lanes(paths: Iterable[str]) -> int:
    """Return how many lanes an epoch can have at most, given everything that is staged: each has one
    part with number 0.
    """
    attempts: Counter[str] = Counter()
    for path in paths:
        attempt, _, number, _ = path.rsplit("-", 3)
        attempts[attempt] += int(number) == 0
    return max(attempts.values(), default=0)


def stage_parts(messages: DataFrame, url: str, prefix: str, limit: MessageLimit) -> StagedOutput:
    """Write messages as parts named `{prefix}-{lane}-{number}-{unique}` under a URL. Raise
    MessageRefused for a message above the limit: once the epoch is sealed, it would be too late.
    """
    write = _writer(store_access(url), prefix, limit)
    written = messages.mapInArrow(write, _STAGED).collect()
    files = tuple(
        sorted((StagedFile(**row.asDict()) for row in written), key=lambda each: each.path)
    )
    return StagedOutput(rows=sum(each.rows for each in files), files=files)


def checked_parts(messages: DataFrame, limit: MessageLimit) -> DataFrame:
    """Return a DataFrame without rows. Computing it fails as `stage_parts` does."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            require_fitting(batch, limit)
        yield from ()

    return messages.mapInArrow(check, _STAGED)


def require_fitting(batch: pa.RecordBatch, limit: MessageLimit) -> None:
    """Raise MessageRefused if a message is above the limit."""
    sizes = _sizes(batch)
    if batch.num_rows and sizes.max() > limit.bytes - _MESSAGE_OVERHEAD:
        row = int(sizes.argmax())
        key = batch.column("key")[row].as_py() if "key" in batch.schema.names else None
        named = "" if key is None else f" with key {key.decode(errors='replace')[:_SHOWN_KEY]}"
        if not limit.is_known:
            raise MessageRefused(
                f"a message{named} has {sizes[row]} bytes, and the limit of the topic is unknown:"
                f" without permission to read it, it is assumed to be {limit.bytes}",
                hint="Grant the user DescribeConfigs on the topic, or write less into one row.",
            )
        raise MessageRefused(
            f"a message{named} has {sizes[row]} bytes, but the topic accepts {limit.bytes}",
            hint="Raise max.message.bytes of the topic, or write less into one row.",
        )


def read_part(store: ObjectStore, part: Part) -> pa.RecordBatch:
    """Return the messages of a part."""
    data = pa.py_buffer(store.read(part.path))
    return pa.ipc.open_stream(data).read_next_batch().slice(0, part.rows)


def _writer(access: StoreAccess, prefix: str, limit: MessageLimit) -> ArrowFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lane = f"{prefix}-{current_subtask():05}"
        store = task_store(access)
        fitting = _fitting_batches(batches, limit)
        for number, pieces in enumerate(bounded(fitting, PART_BYTES, PART_ROWS)):
            data = encoded(pieces)
            path = f"{lane}-{number:05}-{uuid.uuid4().hex[:12]}"
            create_new(store, path, data)
            rows = sum(each.num_rows for each in pieces)
            yield pa.RecordBatch.from_pydict({"path": [path], "rows": [rows], "bytes": [len(data)]})

    return write


def _fitting_batches(
    batches: Iterator[pa.RecordBatch], limit: MessageLimit
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        require_fitting(batch, limit)
        yield batch


def bounded(
    batches: Iterator[pa.RecordBatch], most_bytes: int, most_rows: int
) -> Iterator[list[pa.RecordBatch]]:
    """Group batches into parts. A part exceeds the bound only if it is a single message."""
    part: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        while batch.num_rows:
            fitting = _fitting(batch, most_bytes - size, most_rows - rows)
            if fitting == 0 and not part:
                fitting = 1
            if fitting:
                taken = batch.slice(0, fitting)
                part.append(taken)
                size += int(_sizes(taken).sum())
                rows += fitting
            batch = batch.slice(fitting)
            if batch.num_rows:
                yield part
                part, size, rows = [], 0, 0
    if part:
        yield part


def _fitting(batch: pa.RecordBatch, most_bytes: int, most_rows: int) -> int:
    """Return how many messages at the beginning of a batch fit."""
    ends = np.cumsum(_sizes(batch))
    return min(int(np.searchsorted(ends, most_bytes, side="right")), most_rows)


def _sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the bytes of each message."""
    total = np.zeros(batch.num_rows, dtype=np.int64)
    for name in ("key", "value"):
        if name in batch.schema.names:
            column = batch.column(name)
            width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
            offsets = np.frombuffer(column.buffers()[1], dtype=width)
            total += np.diff(offsets[column.offset : column.offset + len(column) + 1])
    return total


def encoded(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return a part as a file with one batch, which can be produced as a whole."""
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema, options=_COMPRESSED) as writer:
        writer.write_batch(whole)
    return bytes(sink.getvalue())
