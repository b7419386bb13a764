"""Upserts of a Delta table by copy-on-write: which files may hold changed keys, and the attempts to
commit their successors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import JsonValue
from pyspark.sql import SparkSession

from resurgence.connectors.delta.columns import TableShape, require_writable
from resurgence.connectors.delta.files import LiveFile, added_file, as_parts
from resurgence.connectors.delta.log import read_version
from resurgence.connectors.delta.table import SinkTable
from resurgence.connectors.lakehouse.copy_on_write import (
    RewrittenTable,
    StagedChanges,
    apply_changes,
    parts_reader,
)
from resurgence.connectors.lakehouse.data_files import FileLayout
from resurgence.connectors.lakehouse.pruning import ValueRange, may_hold
from resurgence.errors import UserError
from resurgence.storage.access import store_access
from resurgence.storage.object_store import shared_store

_COARSE = timedelta(milliseconds=1)
"""Upper bounds of timestamps in the log are truncated to milliseconds."""


@dataclass
class UpsertCommit:
    """The commit of an epoch's changes, until an attempt succeeds."""

    spark: SparkSession
    table: SinkTable
    changes: StagedChanges
    ranges: Mapping[str, ValueRange]
    """Of the changed keys."""
    prefix: str
    require: Callable[[TableShape], None]
    """Raises UserError if the table cannot have the changes any more."""
    layout_of: Callable[[TableShape], FileLayout]
    transactions: Mapping[str, int]
    info: Mapping[str, JsonValue]
    _written: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """The files of attempts without success, by the version that each would have been."""

    def attempt(self) -> None:
        """Apply the changes to the opened version, and commit the next one."""
        self._delete_superseded()
        shape = self.table.shape()
        require_writable(shape, removes=True)
        self.require(shape)
        require_no_deletion_vectors(self.table)
        touched = candidates(self.table.live_files(), self.ranges)
        output, replaced = apply_changes(
            self.spark,
            self.changes,
            RewrittenTable(
                store_access(self.table.url),
                shape.schema,
                tuple(each.bytes for each in touched),
                parts_reader(self.spark, self.table.url, as_parts(touched, shape.schema)),
            ),
            self.prefix,
            self.layout_of(shape),
        )
        self._written.append((self.table.version + 1, tuple(each.path for each in output.files)))
        self.table.commit(
            self.transactions,
            [added_file(each) for each in output.files],
            [touched[each] for each in replaced],
            self.info,
        )
        self._written.pop()

    def delete_unused(self) -> None:
        """Delete the files of attempts that were not committed, after the epoch was. An attempt
        without an answer may be the one that was.
        """
        store = shared_store(self.table.url)
        for number, paths in self._written:
            version = read_version(store, number)
            if version is not None and not {each.path for each in version.added} & {*paths}:
                store.delete(paths)
        self._written = []

    def _delete_superseded(self) -> None:
        """Delete the files of attempts that can never be committed, because another commit has
        become their version. A request that was lost may still arrive as long as there is none.
        """
        over = [each for each in self._written if each[0] <= self.table.version]
        shared_store(self.table.url).delete(path for _, paths in over for path in paths)
        self._written = [each for each in self._written if each not in over]


def require_no_deletion_vectors(table: SinkTable) -> None:
    """Raise UserError for tables whose files cannot be replaced: the log would keep the rows of a
    file with a deletion vector.
    """
    if table.names_with_deletion_vectors():
        raise UserError(
            f"{table.url} has deletion vectors, and upserts cannot replace their files",
            hint="Run REORG TABLE ... APPLY (PURGE), and disable delta.enableDeletionVectors.",
        )


def candidates(
    files: Sequence[LiveFile], changes: Mapping[str, ValueRange]
) -> tuple[LiveFile, ...]:
    """Return the files that may hold a changed key."""
    return tuple(
        each for each in files if may_hold(changes, {key: _range(each, key) for key in changes})
    )


def _range(file: LiveFile, column: str) -> ValueRange:
    if column in file.partition:
        value = file.partition[column]
        return ValueRange(value, value, value is None, value is not None)
    low, high = file.lowest.get(column), file.highest.get(column)
    if isinstance(high, datetime):
        high += _COARSE
    return ValueRange(low, high, file.nulls.get(column) != 0)
