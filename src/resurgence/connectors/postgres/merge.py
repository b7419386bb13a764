"""The statements that move the rows of a staging table to the table that the sink writes. Pure.

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


def take_turn(oid: int) -> str:
    """Return the statement that waits for other jobs which write the table."""
    return f"SELECT pg_advisory_xact_lock({_TURNS}, {oid - 2**32 if oid >= 2**31 else oid})"


def count_staged(parts: Sequence[StagedPart]) -> str:
    """Return the query for the number of staged rows in parts of one staging table."""
    return f"SELECT count(*) FROM {parts[0].table} WHERE {_of(parts)}"


def merge_statements(
    target: str, columns: Sequence[str], keys: Sequence[str], parts: Sequence[StagedPart]
) -> list[str]:
    """Return the statements that merge parts of one staging table: by key, or by appending.
    `columns` are those of the staging table.
    """
    written = [each for each in columns if each not in (PART, ROW, IS_DELETED)]
    listed = _listed(written)
    if not keys:
        order = quoted(ROW)
        source = f"SELECT {listed} FROM {parts[0].table} WHERE {_of(parts)} ORDER BY {order}"
        return [f"INSERT INTO {target} ({listed}) {source}"]
    newest = (
        f"(SELECT DISTINCT ON ({_listed(keys)}) * FROM {parts[0].table} WHERE {_of(parts)}"
        f" ORDER BY {_listed(keys)}, {quoted(ROW)} DESC) staged"
    )
    has_deletes = IS_DELETED in columns
    same = " AND ".join(f"target.{quoted(each)} = staged.{quoted(each)}" for each in keys)
    delete = f"DELETE FROM {target} target USING {newest} WHERE staged.{IS_DELETED} AND {same}"
    others = [each for each in written if each not in keys]
    action = (
        "UPDATE SET " + ", ".join(f"{quoted(each)} = EXCLUDED.{quoted(each)}" for each in others)
        if others
        else "NOTHING"
    )
    kept = f" WHERE NOT {IS_DELETED}" if has_deletes else ""
    upsert = (
        f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {newest}{kept}"
        f" ORDER BY {_listed(keys)} ON CONFLICT ({_listed(keys)}) DO {action}"
    )
    return [delete, upsert] if has_deletes else [upsert]


def _of(parts: Sequence[StagedPart]) -> str:
    return "(" + " OR ".join(each.condition for each in parts) + ")"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
