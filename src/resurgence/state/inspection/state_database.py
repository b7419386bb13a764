"""A checkpoint's state as SQL tables, in a locked-down DuckDB.

Files on a local disk are read in place; objects in other stores are fetched first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from resurgence.errors import DamagedState
from resurgence.ids import OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import CheckpointView
from resurgence.state.inspection.read_only_database import (
    Limits,
    ReadOnlyDatabase,
    quoted,
    unreadable,
)
from resurgence.state.records import StateFile, TableCheckpoint, TableKind
from resurgence.state.table_schema import table_columns
from resurgence.storage.object_store import split_url
from resurgence.storage.parquet import whole_table

BIN, WINDOW_START = "bin", "window_start"
KEY, EPOCH = "__key", "__epoch"
CHECKPOINTS = "checkpoints"
_NO_COLUMNS = "empty"
"""The column of a table without columns, which SQL does not allow."""


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


class StateDatabase(ReadOnlyDatabase):
    """A database with the tables of one checkpoint, and the table `checkpoints`."""

    def __init__(
        self,
        backend: StateBackend,
        view: CheckpointView,
        kept: Sequence[CheckpointView],
        limits: Limits | None = None,
    ) -> None:
        """`view` is the checkpoint to query, `kept` are all retained checkpoints."""
        super().__init__(limits)
        self._backend = backend
        self.tables = state_tables(view)
        self.names = (*(each.name for each in self.tables), CHECKPOINTS)
        try:
            readable = [path for table in self.tables for path in self._define(table)]
            self.register(CHECKPOINTS, _checkpoints_table(kept))
            self.lock(readable)
        except duckdb.Error as error:
            self.close()
            raise unreadable(error) from error
        except BaseException:
            self.close()
            raise

    def _define(self, table: StateTable) -> tuple[str, ...]:
        """Create a table. Return the local files that it reads in place."""
        checkpoint = table.checkpoint
        if checkpoint.kind is TableKind.GLOBAL:
            self.register(table.name, _rows_as_table([checkpoint.values]))
            return ()
        local = self._local_paths(checkpoint.files)
        if local:
            listed = ", ".join(_literal(path) for path in local)
            source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        else:
            rows = _fetched_rows(self._backend, checkpoint)
            self.register(f"{table.name} as stored", rows)
            source = quoted(f"{table.name} as stored")
        names = [each[0] for each in self._connection.execute(f"DESCRIBE FROM {source}").fetchall()]
        shown = f"make_timestamp({BIN}) AS {WINDOW_START}, *" if BIN in names else "*"
        self._connection.execute(
            f"CREATE VIEW {quoted(table.name)} AS SELECT {shown} FROM {source}{_newest(names)}"
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


def _newest(names: Sequence[str]) -> str:
    """Return the clause that selects the newest row of each group, in tables that have several."""
    if EPOCH not in names:
        return ""
    keys = [quoted(each) for each in names if each == KEY or not each.startswith("__")]
    return f" QUALIFY row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {EPOCH} DESC) = 1"


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
            parts.append(whole_table(backend.store.read(file.path)))
        except (pa.ArrowException, OSError) as error:
            reason = str(error).split("\n", 1)[0]
            raise DamagedState(
                f"state file {file.path} cannot be read: {reason}", path=file.path
            ) from error
    if parts:
        return pa.concat_tables(parts, promote_options="default")
    columns = table_columns(table.schema_text) or {_NO_COLUMNS: None}
    return pa.table({name: pa.array([], kind or pa.null()) for name, kind in columns.items()})


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
