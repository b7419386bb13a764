"""The statements that move the rows of staging tables to the table that the sink writes. Pure.

Each INSERT of a pipeline has a staging table of its own. A key may move from the result of one to
that of another in one epoch, so the deletes of all come before the upserts of any, and spare the
keys that another one upserts.

Several jobs may write one table. They take turns (`take_turn`), so that they cannot deadlock, and
rows are written in the order of their key, so that other programs that do the same cannot deadlock
with them either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resurgence.connectors.net_rows import IS_DELETED
from resurgence.connectors.postgres.location import quoted

PART, ROW = "__part", "__row"
"""The columns of a staging table besides those of the rows: the part, and the place of the row among
all rows of the epoch.
"""
_TURNS = 7_263_005
ROW_BITS = 33
"""A row's place is the number of its subtask, followed by that many bits for its number in it."""


@dataclass(frozen=True)
class StagedPart:
    """The first rows of what one task has staged."""

    table: str
    """The staging table as SQL."""
    number: int
    """Unique: a task that runs twice stages two parts."""
    subtask: int
    rows: int

    @property
    def condition(self) -> str:
        end = (self.subtask << ROW_BITS) + self.rows
        return f"({quoted(PART)} = {self.number} AND {quoted(ROW)} < {end})"


@dataclass(frozen=True)
class StagedRows:
    """Parts of one staging table, and the columns that it has."""

    columns: tuple[str, ...]
    parts: tuple[StagedPart, ...]

    @property
    def written(self) -> list[str]:
        """The columns of the target that these rows have."""
        return [each for each in self.columns if each not in (PART, ROW, IS_DELETED)]

    @property
    def has_deletes(self) -> bool:
        return IS_DELETED in self.columns

    @property
    def selected(self) -> str:
        """FROM and WHERE of a query over the rows."""
        conditions = " OR ".join(each.condition for each in self.parts)
        return f"{self.parts[0].table} WHERE ({conditions})"

    def newest(self, keys: Sequence[str]) -> str:
        """Return the newest row of each key, as a table."""
        listed = _listed(keys)
        order = f"{listed}, {quoted(ROW)} DESC"
        return f"(SELECT DISTINCT ON ({listed}) * FROM {self.selected} ORDER BY {order}) staged"


def take_turn(oid: int) -> str:
    """Return the statement that waits for other jobs which write the table."""
    return f"SELECT pg_advisory_xact_lock({_TURNS}, {oid - 2**32 if oid >= 2**31 else oid})"


def count_staged(rows: StagedRows) -> str:
    """Return the query for the number of staged rows."""
    return f"SELECT count(*) FROM {rows.selected}"


def merge_statements(target: str, keys: Sequence[str], staged: Sequence[StagedRows]) -> list[str]:
    """Return the statements that merge the rows of staging tables: by key, or by appending. Rows of
    a later one overwrite those of an earlier one.
    """
    if not keys:
        return [_append(target, each) for each in staged]
    deletes = [
        _delete(target, keys, each, [other for other in staged if other is not each])
        for each in staged
        if each.has_deletes
    ]
    return deletes + [_upsert(target, keys, each) for each in staged]


def _append(target: str, rows: StagedRows) -> str:
    listed = _listed(rows.written)
    return f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {rows.selected} ORDER BY {quoted(ROW)}"


def _delete(
    target: str, keys: Sequence[str], rows: StagedRows, others: Sequence[StagedRows]
) -> str:
    spared = [
        f"NOT EXISTS (SELECT FROM {each.selected}{_not_deleted(each, ' AND ')}"
        f" AND {_same(each.parts[0].table, keys)})"
        for each in others
    ]
    conditions = [f"staged.{IS_DELETED}", _same("target", keys), *spared]
    return f"DELETE FROM {target} target USING {rows.newest(keys)} WHERE {' AND '.join(conditions)}"


def _upsert(target: str, keys: Sequence[str], rows: StagedRows) -> str:
    listed = _listed(rows.written)
    others = [each for each in rows.written if each not in keys]
    action = (
        "UPDATE SET " + ", ".join(f"{quoted(each)} = EXCLUDED.{quoted(each)}" for each in others)
        if others
        else "NOTHING"
    )
    return (
        f"INSERT INTO {target} ({listed})"
        f" SELECT {listed} FROM {rows.newest(keys)}{_not_deleted(rows, ' WHERE ')}"
        f" ORDER BY {_listed(keys)} ON CONFLICT ({_listed(keys)}) DO {action}"
    )


def _not_deleted(rows: StagedRows, word: str) -> str:
    return f"{word}NOT {IS_DELETED}" if rows.has_deletes else ""


def _same(table: str, keys: Sequence[str]) -> str:
    return " AND ".join(f"{table}.{quoted(each)} = staged.{quoted(each)}" for each in keys)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
