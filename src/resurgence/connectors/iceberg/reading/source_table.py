"""An Iceberg table as a source sees it: its history, and the files of a range of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.reading.file_reader import FilePiece
from resurgence.connectors.iceberg.reading.snapshot_files import SnapshotFiles, SnapshotListings
from resurgence.connectors.iceberg.reading.snapshots import (
    FileRows,
    SnapshotLink,
    TablePosition,
    advanced,
    following,
)
from resurgence.connectors.iceberg.reading.table_files import piece_of
from resurgence.errors import ResurgenceError, SourceRangeGone, UserError, did_you_mean

if TYPE_CHECKING:
    from pyiceberg.table import Table

CHANGE_ID, SNAPSHOT_ID = -1, -2
"""Pieces of a changelog have two values more for their rows, under ids that no column has: what
happened to them, 1 or -1, and the number of their snapshot.
"""
_GONE_HINT = (
    "Start a new job with another --name. Retain snapshots of the table for as long as a job may be"
    " behind, with checkpoints that it may fall back to."
)
_REFRESH_INTERVAL = timedelta(milliseconds=500)
"""How often the catalog is asked for new snapshots."""


@dataclass(frozen=True)
class LoadedTable:
    """A table as the catalog had it."""

    table: Table
    at: datetime
    history: dict[int, SnapshotLink]

    @property
    def head(self) -> int | None:
        current = self.table.current_snapshot()
        return None if current is None else current.snapshot_id


@dataclass(frozen=True)
class TableRange:
    """The rows between two positions."""

    pieces: tuple[FilePiece, ...]
    """Rows that were added."""
    replaced: tuple[FilePiece, ...]
    """Rows of the snapshots that have removed files, deleted and inserted ones."""
    end: TablePosition

    @property
    def rows(self) -> int:
        listed = (*self.pieces, *self.replaced)
        return sum(each.end - each.start for each in listed if each.end is not None)


class SourceTable:
    """The table of a source."""

    def __init__(self, catalog: IcebergCatalog, name: str, *, is_changelog: bool) -> None:
        """`name` is that of the table in the pipeline."""
        self._catalog = catalog
        self._name = name
        self._is_changelog = is_changelog
        self._listings = SnapshotListings(catalog, name, is_changelog)
        self._loaded: LoadedTable | None = None

    def check(self, columns: Sequence[str]) -> None:
        """Raise UserError if the table does not exist, or lacks a column."""
        self._catalog.require_package()
        known = [each.name for each in self._catalog.load().schema().fields]
        for each in columns:
            if each.lower() not in map(str.lower, known):
                raise UserError(
                    f"table '{self._name}': Iceberg table {self._catalog.place} has no column"
                    f" '{each}'",
                    hint=did_you_mean(each, known) or "Declare the columns that it has.",
                )

    def loaded(self, now: datetime) -> LoadedTable:
        """Return the table as it is, or was a moment ago."""
        loaded = self._loaded
        if loaded is None or not timedelta(0) <= now - loaded.at < _REFRESH_INTERVAL:
            loaded = self.load(now)
        return loaded

    def load(self, now: datetime) -> LoadedTable:
        """Return the table as it is."""
        table = self._catalog.load()
        history = {
            each.snapshot_id: SnapshotLink(
                each.snapshot_id,
                each.parent_snapshot_id,
                each.timestamp_ms,
                each.sequence_number or 0,
            )
            for each in table.metadata.snapshots
        }
        self._loaded = LoadedTable(table, now, history)
        return self._loaded

    def holding(self, end: TablePosition) -> LoadedTable:
        """Return the table as it was loaded, or as it is if that lacks the end of a range."""
        loaded = self._loaded
        if loaded is None or end.snapshot not in loaded.history:
            # Not known to any plan, so the next plan asks the catalog again.
            return self.load(datetime.min.replace(tzinfo=UTC))
        return loaded

    def range_after(
        self, loaded: LoadedTable, start: TablePosition, head: int | None, most_rows: int
    ) -> TableRange:
        """Return at most so many rows after a position, up to a snapshot. One that is not divisible
        is read whole, whatever its rows. Raise SourceRangeGone if some are not there any more.
        """
        pieces: list[FilePiece] = []
        replaced: list[FilePiece] = []
        position, left = start, most_rows
        for number, snapshot in enumerate(self._due(loaded, start, head)):
            is_whole = start.whole and snapshot.id == start.snapshot
            files = self._listings.of(loaded.table, snapshot.id, whole=is_whole)
            limit = left if files.is_divisible else sum(files.counts)
            if limit > left and left < most_rows:
                break
            taken, position = advanced(position, snapshot, files.counts, limit)
            left -= sum(each.end - each.start for each in taken)
            listed = pieces if files.is_divisible else replaced
            listed += [self._piece(loaded.table, files, each, number) for each in taken]
            if left <= 0 or position.file is not None:
                break
        return TableRange(tuple(pieces), tuple(replaced), position)

    def _due(
        self, loaded: LoadedTable, start: TablePosition, head: int | None
    ) -> list[SnapshotLink]:
        """Return the snapshots from a position up to one, oldest first."""
        if start.table != str(loaded.table.metadata.table_uuid):
            raise SourceRangeGone(
                f"table '{self._name}': Iceberg table {self._catalog.place} was replaced by another"
                " table of the same name",
                hint="Start a new job with another --name.",
            )
        due = following(loaded.history, head, start.snapshot, start.sequence)
        is_inside = start.file is not None and start.snapshot is not None
        if due is None or (is_inside and start.snapshot not in loaded.history):
            raise SourceRangeGone(
                f"table '{self._name}': {start} is no longer in the history of Iceberg table"
                f" {self._catalog.place}: it has expired, or was rolled back",
                hint=_GONE_HINT,
            )
        if is_inside and start.snapshot is not None:
            due.insert(0, loaded.history[start.snapshot])
        return due

    def _piece(self, table: Table, files: SnapshotFiles, rows: FileRows, number: int) -> FilePiece:
        piece = piece_of(table, files.files[rows.file], (), rows.start, rows.end)
        if not self._is_changelog:
            return piece
        change = files.change(rows.file)
        # The same row of a file may be inserted by one snapshot, and deleted by another.
        what = "inserted" if change > 0 else "deleted"
        return replace(
            piece,
            name=f"{piece.name} {what} by snapshot {rows.snapshot}",
            shared={
                **piece.shared,
                CHANGE_ID: pa.scalar(change, pa.int32()),
                SNAPSHOT_ID: pa.scalar(number, pa.int32()),
            },
        )


def gone_from_history(place: str) -> ResurgenceError:
    """Return the error for a data file that was deleted with its snapshots."""
    return SourceRangeGone(f"{place} does not exist any more", hint=_GONE_HINT)
