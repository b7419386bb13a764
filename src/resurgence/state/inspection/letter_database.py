"""The dead letters of a job as an SQL table, in a locked-down DuckDB."""

from __future__ import annotations

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from resurgence.state.inspection.read_only_database import Limits, ReadOnlyDatabase

TABLE = "dead_letters"


class LetterDatabase(ReadOnlyDatabase):
    """A database with the table `dead_letters`."""

    def __init__(self, letters: pa.Table, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.names = (TABLE,)
        self.register(TABLE, letters)
        self.lock(())

    def matching(self, condition: str) -> set[str]:
        """Return the ids of the dead letters for which a condition in SQL is true."""
        _, rows = self.query(_matching(condition))
        return {str(row[0]) for row in rows}


def columns_of_condition(condition: str) -> set[str] | None:
    """Return the columns that a condition may need; None: all."""
    return columns_of_query(_matching(condition))


def columns_of_query(sql: str) -> set[str] | None:
    """Return the columns that a query may need; None: all, or the query cannot be parsed. Pure.

    Every name in the query counts, whatever it is of: then no column is missed that is named.
    """
    try:
        tree = sqlglot.parse_one(sql, read="duckdb")
    except SqlglotError:
        return None
    tables = {TABLE} | {each.name.lower() for each in tree.find_all(exp.TableAlias)}
    takes_all = (
        any(not isinstance(each.parent, exp.Count) for each in tree.find_all(exp.Star))
        or any(each.method == "NATURAL" for each in tree.find_all(exp.Join))
        # A table that is used as a value is a struct of its row.
        or any(each.name.lower() in tables for each in tree.find_all(exp.Column))
        or any(each.name.upper() == "COLUMNS" for each in tree.find_all(exp.Func))
        or tree.find(exp.Columns) is not None
    )
    return None if takes_all else {each.name.lower() for each in tree.find_all(exp.Identifier)}


def _matching(condition: str) -> str:
    return f"SELECT id FROM {TABLE} WHERE ({condition})"
