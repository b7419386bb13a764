"""Queries over the state of checkpoints and over dead letters that return a bounded number of rows,
for callers that serve many people. `query_process` bounds their memory and time.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from resurgence.errors import QueryStopped, UserError
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import CheckpointView, checkpoint_of, kept_checkpoints
from resurgence.state.inspection.dead_letters import dead_letters
from resurgence.state.inspection.letter_database import LetterDatabase, columns_of_query
from resurgence.state.inspection.read_only_database import Limits, ReadOnlyDatabase, quoted
from resurgence.state.inspection.state_database import EPOCH, StateDatabase, state_tables

MOST_COMPARED = 200_000
"""Rows of a table that are compared."""
MOST_LETTER_BYTES = 4_000_000
"""Of the result of a query over dead letters. A raw record can be as large as a message."""
LIMITS = Limits(memory="768MB", threads=1)


@dataclass(frozen=True)
class FoundRows:
    """The first rows of a query."""

    epoch: int
    rows: pa.Table
    has_more: bool


@dataclass(frozen=True)
class LetterRows:
    """The first rows of a query over dead letters."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    has_more: bool


@dataclass(frozen=True)
class Difference:
    """The rows of a table that only one of two checkpoints has."""

    added: pa.Table
    removed: pa.Table
    is_partial: bool
    """The table is too large: only its first rows were compared."""


def query_state(backend: StateBackend, epoch: int | None, sql: str, most: int) -> FoundRows:
    """Return the first rows of a query over the tables of a checkpoint; by default the newest."""
    views = kept_checkpoints(backend)
    view = checkpoint_of(views, epoch)
    with StateDatabase(backend, view, views, LIMITS) as database:
        found = database.rows(sql, most + 1)
    return FoundRows(view.epoch, found.slice(0, most), found.num_rows > most)


def query_letters(backend: StateBackend, sql: str, most: int) -> LetterRows:
    """Return the first rows of a query over the table of dead letters. Raise QueryStopped if they are
    too large.
    """
    letters = dead_letters(backend, columns=columns_of_query(sql))
    with LetterDatabase(letters.rows, LIMITS) as database:
        columns, rows = database.first_rows(sql, most + 1)
    if len(pickle.dumps(rows)) > MOST_LETTER_BYTES:
        raise QueryStopped(
            f"the result is larger than {MOST_LETTER_BYTES / 1e6:g} MB",
            hint="Select fewer or shorter values, or query the state directory with the command line,"
            " which has no limit.",
        )
    return LetterRows(columns, rows[:most], len(rows) > most)


def difference(
    backend: StateBackend, table: str, from_epoch: int, to_epoch: int, most: int
) -> Difference:
    """Return the first rows by which a table differs between two checkpoints."""
    views = kept_checkpoints(backend)
    old = _table_of(backend, checkpoint_of(views, from_epoch), views, table)
    new = _table_of(backend, checkpoint_of(views, to_epoch), views, table)
    with ReadOnlyDatabase(LIMITS) as database:
        for name, rows in (("old", old), ("new", new)):
            database.register(name, rows.slice(0, MOST_COMPARED))
        database.names = ("old", "new")
        database.lock([])
        added = database.rows("SELECT * FROM new EXCEPT ALL SELECT * FROM old", most)
        removed = database.rows("SELECT * FROM old EXCEPT ALL SELECT * FROM new", most)
    return Difference(added, removed, max(old.num_rows, new.num_rows) > MOST_COMPARED)


def _table_of(
    backend: StateBackend, view: CheckpointView, views: tuple[CheckpointView, ...], table: str
) -> pa.Table:
    """Return a table without the epochs of its rows, which change with every write."""
    if table not in {each.name for each in state_tables(view)}:
        raise UserError(
            f"epoch {view.epoch} has no table '{table}'", hint="Compare epochs that have it."
        )
    with StateDatabase(backend, view, views, LIMITS) as database:
        names = [name for name, _ in database.columns(table) if name != EPOCH]
        columns = ", ".join(map(quoted, names))
        return database.rows(f"SELECT {columns} FROM {quoted(table)}", MOST_COMPARED + 1)
