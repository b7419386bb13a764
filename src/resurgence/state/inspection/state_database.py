"""A checkpoint's state as SQL tables, in a locked-down DuckDB.

Files on a local disk are read in place; objects in other stores are fetched first. Once the tables
exist, the database is locked: it can read those files and no others, write nothing, load no
extension, and change no setting. In addition, only a single SELECT is accepted, because `COPY`
could otherwise write to the files that it can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from resurgence.errors import DamagedState, StorageError, UserError, did_you_mean
from resurgence.ids import OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import CheckpointView
from resurgence.state.records import StateFile, TableCheckpoint, TableKind
from resurgence.state.table_schema import table_columns
from resurgence.storage.object_store import split_url

BIN, WINDOW_START = "bin", "window_start"
CHECKPOINTS = "checkpoints"
_FETCH_ROWS = 1000
_NO_COLUMNS = "empty"
"""The column of a table without columns, which SQL does not allow."""
_NO_SUCH_TABLE = re.compile(r"Table with name (\S+) does not exist")


@dataclass(frozen=True)
class StateTable:
    """A state table and its name in SQL."""

    name: str
    operator: OperatorId
    table: str
    checkpoint: TableCheckpoint

    @property
    def rows(self) -> int:
        """Number of rows; a global table has one."""
        if self.checkpoint.kind is TableKind.GLOBAL:
            return 1
        return sum(each.rows for each in self.checkpoint.files)


def state_tables(view: CheckpointView) -> tuple[StateTable, ...]:
    """Return the tables of a checkpoint, with names that are easy to type."""
    taken = {CHECKPOINTS}
    found = []
    for operator, metadata in view.operators.items():
        for table, checkpoint in metadata.tables.items():
            base = name = re.sub(r"\W", "_", f"{operator}_{table}").lower()
            number = 1
            while name in taken:
                number += 1
                name = f"{base}_{number}"
            taken.add(name)
            found.append(StateTable(name, operator, table, checkpoint))
    return tuple(found)


class StateDatabase:
    """A database with the tables of one checkpoint, and the table `checkpoints`."""

    def __init__(
        self, backend: StateBackend, view: CheckpointView, kept: Sequence[CheckpointView]
    ) -> None:
        """`view` is the checkpoint to query, `kept` are all retained checkpoints."""
        self._backend = backend
        self.tables = state_tables(view)
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "temp_directory": "",
            },
        )
        try:
            self._connection.execute("SET TimeZone = 'UTC'")
            readable = [path for table in self.tables for path in self._define(table)]
            self._register(CHECKPOINTS, _checkpoints_table(kept))
            self._connection.execute("SET allowed_paths = $1", [readable])
            self._connection.execute("SET enable_external_access = false")
            self._connection.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            self.close()
            raise _unreadable(error) from error
        except BaseException:
            self.close()
            raise

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

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tables."""
        return (*(each.name for each in self.tables), CHECKPOINTS)

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Return (name, type) of a table's columns."""
        if table not in self.names:
            raise UserError(f"there is no table '{table}'", hint=did_you_mean(table, self.names))
        described = self._connection.execute(f"DESCRIBE {_quoted(table)}").fetchall()
        return [(str(row[0]), str(row[1])) for row in described]

    def query(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the names of the columns, and an iterator that fetches the rows on demand."""
        try:
            statements = self._connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UserError(
                    "the statement is not a single SELECT",
                    hint="Write one SELECT. State cannot be changed.",
                )
            result = self._connection.execute(statements[0])
        except duckdb.Error as error:
            raise self._translated(error) from error
        names = [str(column[0]) for column in result.description or ()]
        return names, self._fetched(result)

    def _fetched(self, result: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
        try:
            while rows := result.fetchmany(_FETCH_ROWS):
                yield from rows
        except duckdb.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: duckdb.Error) -> UserError | StorageError:
        if isinstance(error, duckdb.IOException):
            return _unreadable(error)
        message, _, rest = str(error).partition("\n")
        missing = _NO_SUCH_TABLE.search(message)
        if missing is not None:
            return UserError(message, hint=did_you_mean(missing[1], self.names))
        candidates = rest.split("\n", 1)[0].strip()
        return UserError(message, hint=candidates if "LINE" not in candidates else "")

    def _define(self, table: StateTable) -> tuple[str, ...]:
        """Create a table. Return the local files that it reads in place."""
        checkpoint = table.checkpoint
        if checkpoint.kind is TableKind.GLOBAL:
            self._register(table.name, _rows_as_table([checkpoint.values]))
            return ()
        local = self._local_paths(checkpoint.files)
        if local:
            listed = ", ".join(_literal(path) for path in local)
            source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        else:
            rows = _fetched_rows(self._backend, checkpoint)
            self._register(f"{table.name} as stored", rows)
            source = _quoted(f"{table.name} as stored")
        names = self._connection.execute(f"DESCRIBE FROM {source}").fetchall()
        shown = (
            f"make_timestamp({BIN}) AS {WINDOW_START}, *" if BIN in {n[0] for n in names} else "*"
        )
        self._connection.execute(
            f"CREATE VIEW {_quoted(table.name)} AS SELECT {shown} FROM {source}"
        )
        return local

    def _local_paths(self, files: Sequence[StateFile]) -> tuple[str, ...]:
        """Return the paths of files on a local disk; empty if they are in another store, or if
        DuckDB would interpret their names as patterns.
        """
        scheme, folder = split_url(self._backend.store.url)
        if scheme != "file":
            return ()
        paths = tuple(str(Path(folder) / each.path) for each in files)
        return () if any(set("*?[") & set(path) for path in paths) else paths

    def _register(self, name: str, rows: pa.Table) -> None:
        self._connection.register(name, rows)


def _rows_as_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Convert rows of JSON values to a table; a column of mixed types becomes text."""
    names = list(dict.fromkeys(name for row in rows for name in row)) or [_NO_COLUMNS]
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except pa.ArrowException:
            columns[name] = pa.array([None if each is None else str(each) for each in values])
    return pa.table(columns)


def _checkpoints_table(kept: Sequence[CheckpointView]) -> pa.Table:
    kinds = {
        **dict.fromkeys(("began_at", "sealed_at"), pa.timestamp("us")),
        **dict.fromkeys(("committed", "finished"), pa.bool_()),
        "duration": pa.float64(),
        "status": pa.string(),
        "reasons": pa.list_(pa.string()),
    }
    rows = [view.summary() for view in kept]
    return pa.table(
        {
            name: pa.array([row[name] for row in rows], kinds.get(name, pa.int64()))
            for name in rows[0]
        }
    )


def _fetched_rows(backend: StateBackend, table: TableCheckpoint) -> pa.Table:
    """Fetch a table's rows from the object store; without files, return an empty table."""
    parts = []
    for file in table.files:
        try:
            data = pa.BufferReader(backend.store.read(file.path))
            parts.append(pq.read_table(data, page_checksum_verification=True))
        except (pa.ArrowException, OSError) as error:
            reason = str(error).split("\n", 1)[0]
            raise DamagedState(
                f"state file {file.path} cannot be read: {reason}", path=file.path
            ) from error
    if parts:
        return pa.concat_tables(parts, promote_options="default")
    columns = table_columns(table.schema_text) or {_NO_COLUMNS: None}
    return pa.table({name: pa.array([], kind or pa.null()) for name, kind in columns.items()})


def _unreadable(error: duckdb.Error) -> StorageError:
    return StorageError(
        str(error).split("\n", 1)[0],
        hint="Run `resurgence checkpoints verify` to find the damaged files.",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
