"""Lookup tables in Postgres. A task reads the table as Arrow batches through ADBC; the server casts
the columns to the declared types.

An unreachable server is an outage, which is retried. A missing table or column is a user error,
which is not. Every wait has a timeout: for a connection, for a lock, and for a server that has
vanished.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.lookups.contract import (
    arrow_schema,
    as_declared,
    lookup_position,
    spark_schema,
    unreadable,
    unusable,
)
from resurgence.connectors.postgres.location import PostgresOptions, quoted, quoted_table
from resurgence.errors import ConfigError, ConnectionLost, ResurgenceError
from resurgence.graph.values import Column
from resurgence.spark_tasks import ArrowFunction

_LOCK_SECONDS = 30
_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamptz",
    "TIMESTAMP_NTZ": "timestamp",
}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_ARRAY = re.compile(r"ARRAY<(\w+)>")
_PRIMARY = "PG_DIAG_MESSAGE_PRIMARY"
_BEFORE_MESSAGE = re.compile(
    r"\A([A-Z_]+: )?(\[libpq\] )?(Failed to connect: )?"
    r"(Execution error \[\w+\]: )?(ERROR: +)?(PQgetCopyData\(\) failed: )?"
)
_OUTAGE = ("08", "53", "57")
"""SQLSTATEs of lost connections, and of servers that lack resources or shut down."""
_USER_ERROR = ("22", "3F", "42")
"""SQLSTATEs of values that cannot be cast, and of names that do not exist."""
_DENIED, _LOCKED = "42501", "55P03"
_LOGIN_REFUSED = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|role .* does not"
)
_MISFIT = re.compile(r"invalid input syntax|malformed|out of range|overflow|invalid byte sequence")
"""Messages about values that cannot be cast, where the SQLSTATE is missing."""
_NO_DATABASE = re.compile(r"database .* does not exist")


class PostgresLookup:
    """A table or view of a Postgres database."""

    def __init__(self, table: str, options: PostgresOptions, columns: Sequence[Column]) -> None:
        self._table = table
        self._url = options.location(table)
        self._stored = options.table
        self._columns = tuple(columns)

    def check(self) -> None:
        if importlib.util.find_spec("adbc_driver_postgresql") is None:
            raise ConfigError(
                f"lookup table {self._table} requires the package adbc-driver-postgresql",
                hint="Install it with `pip install 'resurgence[postgres]'`.",
            )
        _ = self._query

    def read(self, spark: SparkSession) -> DataFrame:
        self.check()
        wanted = arrow_schema(self._columns)
        statements = ("SET TIME ZONE 'UTC'", f"SET lock_timeout = '{_LOCK_SECONDS}s'", self._query)
        reader = _table_reader(self._table, self._url, statements, wanted)
        return spark.range(0, 1, 1, 1).mapInArrow(reader, spark_schema(self._columns))

    @property
    def _query(self) -> str:
        columns = ", ".join(f"{self._cast(each)} AS {quoted(each.name)}" for each in self._columns)
        return f"SELECT {columns} FROM {quoted_table(self._stored)}"

    def _cast(self, column: Column) -> str:
        name = quoted(column.name)
        if simple := _TYPES.get(column.type):
            return f"CAST({name} AS {simple})"
        if decimal := _DECIMAL.fullmatch(column.type):
            # ADBC has no decimals, so they are read as text.
            return f"CAST(CAST({name} AS numeric({decimal[1]},{decimal[2]})) AS text)"
        array = _ARRAY.fullmatch(column.type)
        if array and array[1] in _TYPES:
            return f"CAST({name} AS {_TYPES[array[1]]}[])"
        raise unusable(
            self._table,
            f"column '{column.name}': no Postgres type can be read as {column.type}",
            "Declare it as TEXT, which is the JSON of such a value.",
        )


def _table_reader(
    table: str, url: str, statements: Sequence[str], wanted: pa.Schema
) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                yield from _rows(table, url, statements, wanted)

    return read


def _rows(
    table: str, url: str, statements: Sequence[str], wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Execute the statements and yield the rows of the last one."""
    from adbc_driver_manager import Error
    from adbc_driver_postgresql import dbapi

    try:
        with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            for batch in cursor.fetch_record_batch():
                found = dict(zip(wanted.names, batch.columns, strict=True))
                yield as_declared(table, "the table", found, wanted)
    except Error as error:
        # The names of details are bytes, contrary to their annotation.
        primary = [value for name, value in error.details if _PRIMARY in str(name)]
        text = primary[0].decode(errors="replace") if primary else str(error)
        raise _translated(table, error.sqlstate or "", _plain(text)) from error
    except (pa.ArrowException, OSError) as error:
        raise _translated(table, "", _plain(str(error))) from error


def _plain(text: str) -> str:
    return _BEFORE_MESSAGE.sub("", text).strip().split("\n", 1)[0]


def _translated(table: str, state: str, message: str) -> ResurgenceError:
    """Translate a failure of the server, or of the connection to it."""
    if state == _DENIED:
        return unreadable(table, message, "Grant SELECT on it to the user. The job will retry.")
    if state == _LOCKED:
        return unreadable(table, message, "Check who holds a lock on it. The job will retry.")
    is_misfit = not state and _MISFIT.search(message)
    if state.startswith(_USER_ERROR) or is_misfit or _NO_DATABASE.search(message):
        return unusable(table, message, "Check the options 'dsn' and 'table', and the columns.")
    if _LOGIN_REFUSED.search(message):
        return unreadable(table, message, "Check the user and the password in the option 'dsn'.")
    if not state or state.startswith(_OUTAGE):
        return ConnectionLost(
            f"{lookup_position(table)}: {message}",
            hint="Check that the server is running. The job will retry.",
            position=lookup_position(table),
        )
    return unreadable(table, message, "Check the server. The job will retry.")
