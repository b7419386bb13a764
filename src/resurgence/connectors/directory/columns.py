"""Columnar files: their numbers of rows, and ranges of their rows as declared columns."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.lines import PieceFile
from resurgence.connectors.directory.selection import shown_folder
from resurgence.errors import UserError, did_you_mean
from resurgence.storage.object_store import ObjectStore

_BATCH_ROWS = 20_000
_FOOTER = 64 * 1024
"""The first request of a file asks for so many bytes, which usually have all of its footer."""


def row_count(store: ObjectStore, piece: Piece) -> int:
    """Return the number of rows of a file. Raise UserError if it is damaged."""
    try:
        with _opened(store, piece) as file:
            return int(file.metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(store, piece, error) from error


def rows_of(
    store: ObjectStore, piece: Piece, wanted: pa.Schema, required: Sequence[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (number of the first row, batch) of the rows of a piece, with the wanted columns. A
    column that the file lacks is null, unless it is required. Raise UserError if the file is damaged
    or has other types.
    """
    assert piece.end is not None
    try:
        with _opened(store, piece) as file:
            known = {each.lower(): each for each in file.schema_arrow.names}
            for each in required:
                if each.lower() not in known:
                    raise UserError(
                        f"{_place(store, piece)} has no column '{each}', which is NOT NULL",
                        hint=did_you_mean(each, known.values()) or "Declare it without NOT NULL.",
                    )
            stored = [known[name.lower()] for name in wanted.names if name.lower() in known]
            groups, at = _row_groups(file, piece.start, piece.end)
            for batch in file.iter_batches(
                # Even if no column of the file is wanted, the number of rows is.
                _BATCH_ROWS,
                row_groups=groups,
                columns=stored or file.schema_arrow.names[:1],
            ):
                first, last = max(at, piece.start), min(at + batch.num_rows, piece.end)
                if first < last:
                    part = batch.slice(first - at, last - first)
                    yield first, _declared(store, piece, part, wanted, known)
                at += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _damaged(store, piece, error) from error


def _opened(store: ObjectStore, piece: Piece) -> pq.ParquetFile:
    file = io.BufferedReader(PieceFile(store, piece), _FOOTER)
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us", pre_buffer=True)


def _row_groups(file: pq.ParquetFile, start: int, end: int) -> tuple[list[int], int]:
    """Return the row groups with rows of a range, and the number of their first row."""
    groups: list[int] = []
    first = at = 0
    for number in range(file.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if at < end and at + rows > start:
            first = at if not groups else first
            groups.append(number)
        at += rows
    return groups, first


def _declared(
    store: ObjectStore,
    piece: Piece,
    batch: pa.RecordBatch,
    wanted: pa.Schema,
    known: dict[str, str],
) -> pa.RecordBatch:
    """Cast columns to the declared types."""
    arrays = []
    for field in wanted:
        name = known.get(field.name.lower())
        if name is None:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        values = batch.column(name)
        values = values.storage if isinstance(values.type, pa.BaseExtensionType) else values
        try:
            # Spark's timestamps have microseconds; finer digits are truncated.
            options = pc.CastOptions(field.type, allow_time_truncate=True)
            arrays.append(pc.cast(values, options=options))
        except pa.ArrowException as error:
            reason = str(error).split("\n", 1)[0]
            raise UserError(
                f"column '{field.name}' of {_place(store, piece)} is {values.type} and cannot be"
                f" read as {field.type}: {reason}",
                hint="Declare the column with its stored type, and cast it in the query.",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, names=wanted.names)


def _place(store: ObjectStore, piece: Piece) -> str:
    return f"{shown_folder(store.url)}/{piece.path}"


def _damaged(store: ObjectStore, piece: Piece, error: Exception) -> UserError:
    reason = str(error).split("\n", 1)[0]
    return UserError(
        f"{_place(store, piece)} is not a readable Parquet file: {reason}",
        hint="Remove the file if it was not planned yet, or exclude it by 'source.regex_pattern' in"
        " a new job with another --name.",
    )
