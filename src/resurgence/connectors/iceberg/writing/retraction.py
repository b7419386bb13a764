"""Takes back the epochs of a sink that a rollback has declared dead, as one snapshot of the table.

Its marker names the last of the dead epochs as retracted, so that no zombie commits one of them any
more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.writing.commit import Committer, TableChange
from resurgence.connectors.iceberg.writing.data_files import data_location
from resurgence.connectors.iceberg.writing.marker import Marker, Writer
from resurgence.connectors.iceberg.writing.rollback import (
    SnapshotOrigin,
    dead_snapshots,
    foreign_snapshot,
    is_undone,
    require_all_live,
    snapshot_before,
)
from resurgence.connectors.lakehouse.data_files import epoch_of
from resurgence.ids import Epoch

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


@dataclass(frozen=True)
class Retraction:
    """The retraction of the epochs after one up to another."""

    catalog: IcebergCatalog
    writer: Writer
    folder: str
    """Of the sink's data files, under the table's."""
    after: Epoch
    up_to: Epoch

    def commit(self, appended_up_to: Callable[[Epoch], Collection[str]] | None) -> None:
        """Commit it, unless it was. Raise SinkConflict if it is not possible. The argument returns the
        files of the dead epochs up to one, as far as they are on record; None for upserts.
        """
        if self.catalog.find() is not None:
            Committer(self.catalog, self.writer).commit(
                Marker(self.up_to, retracted_after=self.after),
                lambda table: self._change(table, appended_up_to),
            )

    def _change(
        self, table: Table, appended_up_to: Callable[[Epoch], Collection[str]] | None
    ) -> TableChange:
        """Return what removes the rows of dead epochs."""
        committed = self.writer.read(table.properties).epoch
        if committed <= self.after:
            return TableChange()
        history = _history(table)
        dead_at = dead_snapshots(history, self.writer, self.after, self.up_to)
        with self.catalog.translated("read its files"):
            live = _live_files(table, table.metadata.current_snapshot_id)
            if appended_up_to is None:
                return self._restored(table, history, live)
            if dead_at or not is_undone(history, self.writer, self.after):
                appended = appended_up_to(committed)
                is_merged = not live.keys() >= {*appended}
                if is_merged and dead_at and foreign_snapshot(history, dead_at) is None:
                    return self._restored(table, history, live)
                name = str(self.catalog.place)
                require_all_live(name, appended, live, self.after, self.up_to)
        prefix = f"{data_location(table)}/{self.folder}/{self.writer.job}/"
        dead = [
            each
            for path, each in live.items()
            if path.startswith(prefix)
            and (epoch := epoch_of(path)) is not None
            and self.after < epoch <= self.up_to
        ]
        return TableChange(removed=dead)

    def _restored(
        self, table: Table, history: list[SnapshotOrigin], live: dict[str, DataFile]
    ) -> TableChange:
        """Return what restores the files before the dead epochs."""
        name = str(self.catalog.place)
        before = snapshot_before(name, history, self.writer, self.after, self.up_to)
        restored = _live_files(table, before)
        return TableChange(
            [each for path, each in restored.items() if path not in live],
            [each for path, each in live.items() if path not in restored],
        )


def _history(table: Table) -> list[SnapshotOrigin]:
    """Return the snapshots that led to the current one, newest first."""
    from pyiceberg.table.snapshots import Operation

    found = []
    at = table.current_snapshot()
    while at is not None:
        summary = at.summary.additional_properties if at.summary else {}
        moves_rows = at.summary is not None and at.summary.operation is Operation.REPLACE
        parent = at.parent_snapshot_id
        # Sequence numbers count commits; tools that expire snapshots may cut the link to a parent.
        is_first = parent is None and (at.sequence_number or 1) == 1
        found.append(SnapshotOrigin(at.snapshot_id, parent, summary, is_first, moves_rows))
        at = None if parent is None else table.snapshot_by_id(parent)
    return found


def _live_files(table: Table, snapshot_id: int | None) -> dict[str, DataFile]:
    """Return the data files of a snapshot by location."""
    from pyiceberg.manifest import ManifestContent

    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return {}
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    }
