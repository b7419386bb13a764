"""Staging tables: the rows of an epoch, durable, in a table that only the sink knows.

A sink has one staging table, which it empties before every epoch: a table per epoch would fill the
server's catalogs. Tasks COPY into it in short transactions; what one task writes is a part with a
unique number. What a checkpoint names are parts; rows of tasks that failed or ran twice belong to none. The
table is logged, as a sealed epoch must survive a crash of the server.

A staging table is registered with the epoch whose rows it has, and dropped when that is committed or
rolled back. Each engine has its own, so a zombie cannot empty that of its successor.
"""

from __future__ import annotations

import itertools
import logging
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.contract import StagedFile, StagedOutput
from resurgence.connectors.postgres.connections import IDLE_IN_TRANSACTION, Database, limit_idle
from resurgence.connectors.postgres.copy_text import copy_text
from resurgence.connectors.postgres.location import quoted
from resurgence.connectors.postgres.markers import SCHEMA, Marker, create_markers, has_markers
from resurgence.connectors.postgres.merge import PART, ROW, ROW_BITS, StagedPart
from resurgence.errors import ResurgenceError
from resurgence.ids import Epoch
from resurgence.spark_tasks import ArrowFunction, current_subtask

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger(__name__)

_LOCK_TIMEOUT = timedelta(seconds=2)
"""How long to wait for a task that should have ended to let go of its staging table."""
_IDLE_IN_REHEARSAL = timedelta(hours=6)
"""How long the transaction of a rehearsal waits for Spark to compute the next rows. The search for
failing rows has a timeout of its own, and must not end with an outage. There are no locks on the
target yet.
"""
_CHUNK_BYTES = 8 * 1024 * 1024
_STAGED = StructType(
    [
        StructField("path", StringType()),
        StructField("rows", LongType()),
        StructField("bytes", LongType()),
    ]
)


REHEARSED = f"pg_temp.{quoted('resurgence_rehearsed')}"
REHEARSED_PART = StagedPart(REHEARSED, number=0, subtask=0, rows=1 << ROW_BITS)
"""The rows of a rehearsal, as the part of a staging table."""


@dataclass(frozen=True)
class Rehearsal:
    """What a task does instead of staging: it copies rows to a temporary table, and executes
    statements over it. Everything is rolled back.
    """

    columns: tuple[str, ...]
    """Of the rows, as in `StagingTable.prepare`."""
    statements: tuple[str, ...]
    """Refer to the rows as REHEARSED_PART."""


class StagingTable:
    """The staging table of one sink in one engine."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = _new_name()
        self._layout: tuple[str, ...] = ()

    def prepare(self, marker: Marker, epoch: Epoch, columns: tuple[str, ...]) -> str:
        """Return an empty table with these columns, for an epoch, as SQL. The rows of the epoch
        before are committed.
        """
        layout = _layout(columns)
        try:
            self._prepare(marker, epoch, layout)
        except ResurgenceError:
            # Perhaps a task that should have ended still writes to it. It is left to the sweep.
            self._name = _new_name()
            self._prepare(marker, epoch, layout)
        self._layout = layout
        return _sql(self._name)

    def _prepare(self, marker: Marker, epoch: Epoch, layout: tuple[str, ...]) -> None:
        table = _sql(self._name)
        with self._database.transaction(_LOCK_TIMEOUT) as connection:
            create_markers(connection)
            connection.execute(
                "INSERT INTO resurgence.staging (name, job, sink, epoch) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (name) DO UPDATE SET epoch = EXCLUDED.epoch",
                (self._name, marker.job, marker.sink, epoch),
            )
            if layout == self._layout and columns_of(connection, table):
                connection.execute(f"TRUNCATE {table}".encode())
            else:
                connection.execute(f"DROP TABLE IF EXISTS {table}".encode())
                connection.execute(f"CREATE TABLE {table} ({', '.join(layout)})".encode())


def sweep_staging(database: Database, marker: Marker, epoch: Epoch) -> None:
    """Drop the staging tables with rows of epochs up to this one."""

    def find(connection: psycopg.Connection[Any]) -> list[str]:
        if not has_markers(connection):
            return []
        found = connection.execute(
            "SELECT name FROM resurgence.staging WHERE (job, sink) = (%s, %s) AND epoch <= %s",
            (marker.job, marker.sink, epoch),
        )
        return [name for (name,) in found]

    for name in database.run(find):
        try:
            with database.transaction(_LOCK_TIMEOUT) as connection:
                gone = connection.execute(
                    "DELETE FROM resurgence.staging WHERE name = %s AND epoch <= %s", (name, epoch)
                )
                if gone.rowcount:
                    connection.execute(f"DROP TABLE IF EXISTS {_sql(name)}".encode())
        except ResurgenceError as error:
            # A task that should have ended still writes to it.
            log.warning("staging table %s remains for now: %s", _sql(name), error.message)


def columns_of(connection: psycopg.Connection[Any], table: str) -> list[str]:
    """Return the columns of a staging table; none if it does not exist."""
    found = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
        " AND NOT attisdropped ORDER BY attnum",
        [table],
    )
    return [name for (name,) in found]


def stage_rows(rows: DataFrame, database: Database, table: str) -> StagedOutput:
    """Copy rendered rows to a staging table, one part per task that has rows."""
    written = rows.mapInArrow(_stager(database, table), _STAGED).collect()
    files = tuple(
        sorted((StagedFile(**row.asDict()) for row in written), key=lambda each: each.path)
    )
    return StagedOutput(rows=sum(each.rows for each in files), files=files)


def rehearse_rows(rows: DataFrame, database: Database, rehearsal: Rehearsal) -> DataFrame:
    """Return a DataFrame without rows. Computing it fails as staging the rows does."""
    return rows.mapInArrow(rehearser(database, rehearsal), _STAGED)


def staged_parts(staged: StagedOutput) -> dict[str, list[StagedPart]]:
    """Return the parts that a checkpoint names, by staging table."""
    tables: dict[str, list[StagedPart]] = {}
    for each in staged.files:
        name, subtask, number = each.path.split("/")
        part = StagedPart(_sql(name), int(number), int(subtask), each.rows)
        tables.setdefault(part.table, []).append(part)
    return tables


def _stager(database: Database, table: str) -> ArrowFunction:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        subtask, number = current_subtask(), random.SystemRandom().getrandbits(62)
        rows = size = 0
        # A transaction for each chunk: none is open while Spark computes the next rows.
        for chunk in _chunks(batches):
            with database.transaction() as connection:
                size += _copy(connection, table, chunk, number, (subtask << ROW_BITS) + rows)
            rows += sum(each.num_rows for each in chunk)
        if rows:
            path = f"{_name(table)}/{subtask:05}/{number}"
            yield pa.RecordBatch.from_pydict({"path": [path], "rows": [rows], "bytes": [size]})

    return stage


def rehearser(database: Database, rehearsal: Rehearsal) -> ArrowFunction:
    """Return the function of a task that rehearses staging, and yields nothing."""
    create = f"CREATE TABLE {REHEARSED} ({', '.join(_layout(rehearsal.columns))})"

    def rehearse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chunks = _chunks(batches)
        first = next(chunks, None)
        if first is not None:
            rows = 0
            with database.transaction(keep=False) as connection:
                connection.execute(create.encode())
                connection.execute(limit_idle(_IDLE_IN_REHEARSAL).encode())
                for chunk in itertools.chain([first], chunks):
                    _copy(connection, REHEARSED, chunk, REHEARSED_PART.number, rows)
                    rows += sum(each.num_rows for each in chunk)
                connection.execute(limit_idle(IDLE_IN_TRANSACTION).encode())
                for each in rehearsal.statements:
                    connection.execute(each.encode())
        yield from ()

    return rehearse


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Group batches that have rows into chunks for one COPY each."""
    chunk: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            chunk.append(batch)
            size += batch.nbytes
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _copy(
    connection: psycopg.Connection[Any],
    table: str,
    chunk: Sequence[pa.RecordBatch],
    number: int,
    first: int,
) -> int:
    """Copy a chunk of a part, whose rows have places from `first` on. Return its bytes."""
    names = ", ".join(quoted(each) for each in (PART, ROW, *chunk[0].schema.names))
    size = 0
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table} ({names}) FROM STDIN (FORMAT csv)".encode()) as copy,
    ):
        for batch in chunk:
            text = copy_text(_numbered(batch, number, first))
            copy.write(text)
            first, size = first + batch.num_rows, size + len(text)
    return size


def _numbered(batch: pa.RecordBatch, number: int, first: int) -> pa.RecordBatch:
    places = pa.arange(first, first + batch.num_rows)
    parts = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
    return pa.RecordBatch.from_arrays(
        [parts, places, *batch.columns], names=[PART, ROW, *batch.schema.names]
    )


def _layout(columns: Sequence[str]) -> tuple[str, ...]:
    # Ours last: the server quotes the columns of a row that it refuses in their order.
    return (*columns, f"{quoted(PART)} bigint", f"{quoted(ROW)} bigint")


def _new_name() -> str:
    return f"staged_{uuid.uuid4().hex[:16]}"


def _sql(name: str) -> str:
    return f"{SCHEMA}.{quoted(name)}"


def _name(sql: str) -> str:
    return sql.removeprefix(f'{SCHEMA}."').removesuffix('"')
