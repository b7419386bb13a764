"""The dead letters of a job as an SQL table, in a locked-down DuckDB."""

from __future__ import annotations

import pyarrow as pa

from resurgence.state.inspection.read_only_database import ReadOnlyDatabase

TABLE = "dead_letters"


class LetterDatabase(ReadOnlyDatabase):
    """A database with the table `dead_letters`."""

    def __init__(self, letters: pa.Table) -> None:
        super().__init__()
        self.names = (TABLE,)
        self.register(TABLE, letters)
        self.lock(())

    def matching(self, condition: str) -> list[str]:
        """Return the ids of the dead letters for which a condition in SQL is true."""
        _, rows = self.query(f"SELECT id FROM {TABLE} WHERE ({condition})")
        return [str(row[0]) for row in rows]
