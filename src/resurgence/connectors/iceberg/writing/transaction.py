"""A transaction of pyiceberg whose cost does not grow with a deep copy of all snapshots, fifteen times
a commit.

Only `commit` imports this module, when it commits.
"""

from __future__ import annotations

from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate


class CachedTransaction(Transaction):
    """A transaction that computes its metadata once per change. pyiceberg computes and copies them
    whenever it looks at them, and does not change what it has got.
    """

    _computed: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None
    """The metadata of the table and the updates, by identity, and the result."""

    @property
    def table_metadata(self) -> TableMetadata:
        base, updates = self._table.metadata, self._updates
        known = self._computed
        if known is None or known[0] is not base or known[1] is not updates:
            known = (base, updates, super().table_metadata)
            self._computed = known
        return known[2]
