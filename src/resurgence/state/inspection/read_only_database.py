"""A locked-down DuckDB: reads the tables that it was given, and nothing else.

Once the tables exist, the database is locked: it can read the named files and no others, write
nothing, load no extension, and change no setting. In addition, only a single SELECT is accepted,
because `COPY` could otherwise write to the files that it can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa

from resurgence.errors import StorageError, UserError, did_you_mean

_FETCH_ROWS = 1000
_NO_SUCH_TABLE = re.compile(r"Table with name (\S+) does not exist")


@dataclass(frozen=True)
class Limits:
    """What queries may use."""

    memory: str
    """As DuckDB writes sizes: `768MB`."""
    threads: int


class ReadOnlyDatabase:
    """Tables that can be queried. Call `lock` when they are defined."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.names: tuple[str, ...] = ()
        """The names of all tables."""
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "temp_directory": "",
                **({} if limits is None else _settings(limits)),
            },
        )
        self._connection.execute("SET TimeZone = 'UTC'")

    def lock(self, readable: Sequence[str]) -> None:
        """Allow nothing but to read these files."""
        self._connection.execute("SET allowed_paths = $1", [list(readable)])
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def register(self, name: str, rows: pa.Table) -> None:
        """Define a table."""
        self._connection.register(name, rows)

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Return (name, type) of a table's columns."""
        if table not in self.names:
            raise UserError(f"there is no table '{table}'", hint=did_you_mean(table, self.names))
        described = self._connection.execute(f"DESCRIBE {quoted(table)}").fetchall()
        return [(str(row[0]), str(row[1])) for row in described]

    def query(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the names of the columns, and an iterator that fetches the rows on demand."""
        try:
            result = self._connection.execute(self._select(sql))
        except duckdb.Error as error:
            raise self._translated(error) from error
        names = [str(column[0]) for column in result.description or ()]
        return names, self._fetched(result)

    def _select(self, sql: str) -> duckdb.Statement:
        """Return the statement of a text; raise UserError unless it is a single SELECT."""
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UserError(
                "the statement is not a single SELECT",
                hint="Write one SELECT. State cannot be changed.",
            )
        return statements[0]

    def rows(self, sql: str, most: int) -> pa.Table:
        """Return at most `most` rows of a query."""
        try:
            self._select(sql)
            return self._connection.sql(sql).limit(most).to_arrow_table()
        except duckdb.Error as error:
            raise self._translated(error) from error

    def first_rows(self, sql: str, most: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the names of the columns, and at most `most` rows of a query."""
        try:
            self._select(sql)
            found = self._connection.sql(sql).limit(most)
            return [*found.columns], found.fetchall()
        except duckdb.Error as error:
            raise self._translated(error) from error

    def _fetched(self, result: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
        try:
            while rows := result.fetchmany(_FETCH_ROWS):
                yield from rows
        except duckdb.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: duckdb.Error) -> UserError | StorageError:
        if isinstance(error, duckdb.IOException):
            return unreadable(error)
        message, _, rest = str(error).partition("\n")
        missing = _NO_SUCH_TABLE.search(message)
        if missing is not None:
            return UserError(message, hint=did_you_mean(missing[1], self.names))
        candidates = rest.split("\n", 1)[0].strip()
        return UserError(message, hint=candidates if "LINE" not in candidates else "")


def _settings(limits: Limits) -> dict[str, str]:
    return {"memory_limit": limits.memory, "threads": str(limits.threads)}


def unreadable(error: duckdb.Error) -> StorageError:
    """Return the error for a file that cannot be read."""
    return StorageError(
        str(error).split("\n", 1)[0],
        hint="Run `resurgence checkpoints verify` to find the damaged files.",
    )


def quoted(name: str) -> str:
    """Return a name as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'
