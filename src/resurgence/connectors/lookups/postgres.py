"""Lookup tables in Postgres. A task reads the table, as Arrow batches through ADBC; the server casts
the columns to the declared types.

A server that is away is an outage, and tried again. A table or a column that is not there is a
mistake, and is not. Nothing waits for ever: not for a connection, not for a lock, not for a server
that has vanished.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.connector import Connector, LookupRole
from resurgence.connectors.lookups.contract import (
    arrow_schema,
    as_declared,
    place_of,
    spark_schema,
    unreadable,
    unusable,
)
from resurgence.errors import ConfigError, ConnectionLost, ResurgenceError
from resurgence.graph.table_options import TableOptions, option
from resurgence.graph.values import Column
from resurgence.spark_tasks import ArrowFunction

_PARAMETERS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Unless the URL says otherwise."""
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
_AWAY = ("08", "53", "57")
"""SQLSTATEs of connections that broke, and of servers that have no room or end."""
_MISTAKES = ("22", "3F", "42")
"""SQLSTATEs of values that cannot be cast, and of names that do not exist."""
_DENIED, _LOCKED = "42501", "55P03"
_REFUSED = re.compile(r"authentication failed|no password supplied|pg_hba\.conf|role .* does not")
_MISFIT = re.compile(r"invalid input syntax|malformed|out of range|overflow|invalid byte sequence")
"""What is said of values that cannot be cast, where it comes without its SQLSTATE."""
_NO_DATABASE = re.compile(r"database .* does not exist")


class PostgresOptions(TableOptions):
    """The options of a `postgres` lookup table."""

    url: str = option("`postgresql://user@host:5432/database`")
    table: str = option(
        "a table or view, with its schema if need be: `sales.customers`. The case of names counts"
    )
    password: SecretStr | None = option(
        "instead of one in the URL, where it would have to be percent-encoded", default=None
    )


class PostgresLookup:
    """A table, or a view, of a Postgres database."""

    def __init__(self, table: str, options: PostgresOptions, columns: Sequence[Column]) -> None:
        self._table = table
        password = options.password.get_secret_value() if options.password else None
        self._url = _completed(options.url, password)
        self._stored = options.table
        self._columns = tuple(columns)

    def check(self) -> None:
        if importlib.util.find_spec("adbc_driver_postgresql") is None:
            raise ConfigError(
                f"the lookup table {self._table} needs the package adbc-driver-postgresql",
                hint="install it with pip install 'resurgence[postgres]'",
            )
        if urlsplit(self._url).scheme not in ("postgresql", "postgres"):
            raise unusable(
                self._table,
                "the option 'url' is no URL of a Postgres database",
                "write it as in postgresql://user@host:5432/database",
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
        columns = ", ".join(f"{self._cast(each)} AS {_quoted(each.name)}" for each in self._columns)
        stored = ".".join(_quoted(each) for each in self._stored.split("."))
        return f"SELECT {columns} FROM {stored}"

    def _cast(self, column: Column) -> str:
        name = _quoted(column.name)
        if simple := _TYPES.get(column.type):
            return f"CAST({name} AS {simple})"
        if decimal := _DECIMAL.fullmatch(column.type):
            # ADBC has no decimals: their text says the same.
            return f"CAST(CAST({name} AS numeric({decimal[1]},{decimal[2]})) AS text)"
        array = _ARRAY.fullmatch(column.type)
        if array and array[1] in _TYPES:
            return f"CAST({name} AS {_TYPES[array[1]]}[])"
        raise unusable(
            self._table,
            f"column '{column.name}': Postgres has nothing that can be read as {column.type}",
            "declare it as TEXT: it is the JSON of such a value",
        )


def _completed(url: str, password: str | None) -> str:
    """The URL with what it leaves to us."""
    more = {name: value for name, value in _PARAMETERS.items() if f"{name}=" not in url}
    if password is not None:
        more["password"] = quote(password, safe="")
    given = "&".join(f"{name}={value}" for name, value in more.items())
    return f"{url}{'&' if '?' in url else '?'}{given}" if given else url


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


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
    """What the last of the statements gives."""
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
        # The names of details are bytes, whatever their annotation says.
        primary = [value for name, value in error.details if _PRIMARY in str(name)]
        text = primary[0].decode(errors="replace") if primary else str(error)
        raise _told(table, error.sqlstate or "", _plain(text)) from error
    except (pa.ArrowException, OSError) as error:
        raise _told(table, "", _plain(str(error))) from error


def _plain(text: str) -> str:
    return _BEFORE_MESSAGE.sub("", text).strip().split("\n", 1)[0]


def _told(table: str, state: str, message: str) -> ResurgenceError:
    """What a failure of the server, or of the way to it, is for us."""
    if state == _DENIED:
        return unreadable(table, message, "GRANT SELECT on it, then it goes on by itself")
    if state == _LOCKED:
        return unreadable(table, message, "someone holds a lock on it; it will be tried again")
    is_misfit = not state and _MISFIT.search(message)
    if state.startswith(_MISTAKES) or is_misfit or _NO_DATABASE.search(message):
        return unusable(table, message, "check the options 'url' and 'table', and the columns")
    if _REFUSED.search(message):
        return unreadable(table, message, "check the user and the password in the option 'url'")
    if not state or state.startswith(_AWAY):
        return ConnectionLost(
            f"{place_of(table)}: {message}",
            hint="is the server up? it will be tried again",
            position=place_of(table),
        )
    return unreadable(table, message, "it will be tried again")


POSTGRES = Connector(
    "postgres",
    lookup=LookupRole(
        make=lambda options, table: PostgresLookup(table.table, options, table.columns),
        options=PostgresOptions,
    ),
)
