"""Commits to an Iceberg table: each is one transaction that also sets the marker of its sink.

A commit requires that the table's main branch is still the snapshot that it was built on. So of all
processes that try to commit an epoch, zombies included, one succeeds; every other one is refused,
loads the table again, and finds the marker. For the same reason each commit adds a snapshot, even
one without files: a property alone would not stop a commit that is under way.

pyiceberg would itself retry on top of the new snapshot, without a look at the marker. That is
switched off. An attempt whose answer is lost may succeed later; the next attempt is built on the same
snapshot, or finds the marker.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resurgence.connectors.contract import require_same_input
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.writing.marker import Marker, Writer
from resurgence.errors import ConnectionLost, SinkError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

log = logging.getLogger(__name__)

_DEADLINE_SECONDS = 300.0
_LONGEST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class TableChange:
    """The files that a snapshot adds and removes."""

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    undo: Callable[[], None] = lambda: None
    """Called if the change was refused, and is not part of the table."""
    moves_rows: bool = False
    """The added files have the same rows as those that are removed."""


class Committer:
    """Commits the changes of one sink."""

    def __init__(
        self,
        catalog: IcebergCatalog,
        writer: Writer,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._catalog = catalog
        self._writer = writer
        self._clock = clock
        self._sleep = sleep

    def commit(self, marker: Marker, change_of: Callable[[Table], TableChange]) -> bool:
        """Commit a change, computed for the table as it is, unless the table has that marker
        already, or a later one. Return whether it was committed by this call, as far as is known. Raise
        SinkConflict if the epoch was committed over other input.
        """
        give_up_at = self._clock() + _DEADLINE_SECONDS
        attempt = 0
        refused: TableChange | None = None
        while True:
            table = self._catalog.load()
            if self._is_done(table, marker):
                return False
            if refused is not None:
                # Not earlier: a proxy may have repeated a request that had succeeded.
                refused.undo()
            change = change_of(table)
            refused = None
            try:
                commit_once(
                    self._catalog,
                    table,
                    change,
                    self._writer.snapshot_properties(marker.epoch),
                    self._writer.properties(marker),
                )
                return True
            except ConnectionLost as error:
                # It may have succeeded, or may yet, so its files stay. The next look decides.
                log.warning("a commit to %s got no answer: %s", self._catalog.place, error.message)
                reason = error.message
            except Refused as error:
                refused, reason = change, str(error)
            if self._clock() > give_up_at:
                raise SinkError(
                    f"epoch {marker.epoch} cannot be committed to Iceberg table"
                    f" {self._catalog.place}: {reason}",
                    hint="Check whether others commit to the table all the time. The job will retry.",
                )
            attempt += 1
            self._sleep(min(_LONGEST_PAUSE_SECONDS, 0.05 * 2**attempt) * random.random())

    def _is_done(self, table: Table, marker: Marker) -> bool:
        held = self._writer.read(table.properties)
        if held.epoch == marker.epoch and marker.covered is not None:
            place = f"Iceberg table {self._catalog.place}"
            require_same_input(place, marker.epoch, held.covered, marker.covered)
        return held.rank >= marker.rank


class Refused(Exception):
    """The table has changed since it was loaded."""


def commit_once(
    catalog: IcebergCatalog,
    table: Table,
    change: TableChange,
    origin: dict[str, str],
    properties: dict[str, str],
) -> None:
    """Add a snapshot to a table as it was loaded, with properties that say who made it, and set
    properties of the table. Raise Refused if the table has another snapshot by now, and
    ConnectionLost if the answer is lost: then it may have been added, or may yet be, as long as the
    table has none.
    """
    from pyiceberg.exceptions import (
        CommitFailedException,
        NoSuchTableError,
        ValidationException,
    )

    from resurgence.connectors.iceberg.writing.file_replacement import FileReplacement
    from resurgence.connectors.iceberg.writing.transaction import CachedTransaction

    try:
        with (
            catalog.translated("commit to it"),
            CachedTransaction(_without_retries(table)) as transaction,
        ):
            transaction.set_properties(properties)
            if change.removed:
                replacement = FileReplacement(transaction, origin, moves_rows=change.moves_rows)
                with replacement:
                    for each in change.removed:
                        replacement.delete_data_file(each)
                    for each in change.added:
                        replacement.append_data_file(each)
            else:
                append = transaction.update_snapshot(snapshot_properties=origin).merge_append()
                with append:
                    for each in change.added:
                        append.append_data_file(each)
    except (CommitFailedException, NoSuchTableError, ValidationException) as error:
        raise Refused(str(error).split("\n", 1)[0]) from error


def _without_retries(table: Table) -> Table:
    """Return a table whose commits are tried once. The setting is not sent to the catalog."""
    from pyiceberg.table import Table

    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    metadata = table.metadata.model_copy(update={"properties": properties})
    return Table(
        table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config
    )
