"""Reading of pieces in Spark tasks: lines as records, or rows of columnar files as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.directory.columns import rows_of
from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.lines import lines_of
from resurgence.connectors.directory.options import Compression
from resurgence.connectors.directory.selection import shown_folder
from resurgence.spark_tasks import ArrowFunction
from resurgence.storage.access import StoreAccess
from resurgence.storage.object_store import ObjectStore, task_store

PATH, LINE, SIZE, MODIFIED = "path", "line", "size", "modified"
"""The columns of a record besides its content."""
_FACTS = pa.schema(
    [(PATH, pa.string()), (LINE, pa.int64()), (SIZE, pa.int64()), (MODIFIED, pa.int64())]
)
FACTS_SQL = f"{PATH} STRING, {LINE} BIGINT, {SIZE} BIGINT, {MODIFIED} BIGINT"

PieceReader = Callable[[ObjectStore, Piece], Iterator[tuple[int, pa.RecordBatch]]]
"""Yields (number of the first row, batch) of a piece."""


@dataclass(frozen=True)
class LineReader:
    """Reads lines, as the column `raw`. A damaged file ends with a record that is null."""

    compressions: dict[str, Compression]
    """By path."""

    def __call__(self, store: ObjectStore, piece: Piece) -> Iterator[tuple[int, pa.RecordBatch]]:
        for each in lines_of(store, piece, self.compressions[piece.path]):
            texts = pa.nulls(1, pa.binary()) if each.texts is None else each.texts
            yield each.first, pa.RecordBatch.from_arrays([texts], ["raw"])


@dataclass(frozen=True)
class ColumnReader:
    """Reads the declared columns of columnar files."""

    wanted: pa.Schema
    required: tuple[str, ...]

    def __call__(self, store: ObjectStore, piece: Piece) -> Iterator[tuple[int, pa.RecordBatch]]:
        return rows_of(store, piece, self.wanted, self.required)


def read_in_tasks(
    spark: SparkSession,
    access: StoreAccess,
    pieces: Sequence[Piece],
    parallelism: int,
    reader: PieceReader,
    schema: str,
) -> DataFrame:
    """Return the records of pieces, with the columns of FACTS_SQL and of `schema`."""
    shares = balanced(pieces, parallelism)
    function = _reading(access, shares, reader)
    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(
        function, f"{FACTS_SQL}, {schema}"
    )


def balanced(pieces: Sequence[Piece], tasks: int) -> list[list[Piece]]:
    """Divide pieces among tasks, so that each reads about the same number of bytes, or of rows. Each
    has its pieces in order.
    """
    shares: list[list[int]] = [[] for _ in range(max(1, min(tasks, len(pieces))))]
    loads = [0] * len(shares)
    weights = [each.size if each.end is None else each.end - each.start for each in pieces]
    for number in sorted(range(len(pieces)), key=lambda each: -weights[each]):
        place = loads.index(min(loads))
        shares[place].append(number)
        loads[place] += weights[number] + 1
    return [[pieces[number] for number in sorted(share)] for share in shares]


def _reading(access: StoreAccess, shares: list[list[Piece]], reader: PieceReader) -> ArrowFunction:
    root = shown_folder(access.url)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The row identifies the share. The task's number does not, because inputs may be in a UNION.
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for piece in shares[number]:
                    for first, rows in reader(task_store(access), piece):
                        yield _with_facts(f"{root}/{piece.path}", piece, first, rows)

    return read


def _with_facts(place: str, piece: Piece, first: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    count = rows.num_rows
    facts = [
        pa.repeat(place, count),
        pa.array(np.arange(first, first + count, dtype=np.int64)),
        pa.repeat(piece.size, count),
        pa.repeat(piece.modified, count),
    ]
    fields = [
        *_FACTS,
        *(pa.field(f"value_{name}", rows.schema.field(name).type) for name in rows.schema.names),
    ]
    return pa.RecordBatch.from_arrays([*facts, *rows.columns], schema=pa.schema(fields))
