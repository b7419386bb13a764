"""What a snapshot adds and removes, by its manifests.

The operation of a snapshot does not tell: `overwrite` may have added files alone. Only `replace` does,
which moves rows to other files. It is passed over.

An append-only stream cannot take rows back, so a snapshot that removes data files or adds deletes is
an error there. In a changelog the rows of removed files are deleted. Delete files are an error in both:
which rows they delete is found only by reading the files that they apply to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.errors import UserError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_RETAINED_LISTINGS = 256
"""A range of small epochs has many snapshots, which are listed when it is planned and when it is read."""
_COPY_ON_WRITE = (
    "Set write.delete.mode, write.update.mode and write.merge.mode of the table to copy-on-write."
)


@dataclass(frozen=True)
class SnapshotFiles:
    """The files of a snapshot that a source reads, removed ones first, in a fixed order."""

    files: tuple[DataFile, ...] = ()
    removed: int = 0
    """How many of them it has removed."""

    @property
    def counts(self) -> list[int]:
        return [each.record_count for each in self.files]

    @property
    def is_divisible(self) -> bool:
        """Whether an epoch may end within it. The rows that it deletes and inserts belong
        together.
        """
        return not self.removed

    def change(self, file: int) -> int:
        """Return what the rows of a file are in a changelog: 1 for inserted, -1 for deleted."""
        return -1 if file < self.removed else 1


@dataclass
class SnapshotListings:
    """The files of a table's snapshots, of which the newest are remembered."""

    catalog: IcebergCatalog
    source: str
    """The name of the table in the pipeline."""
    is_changelog: bool
    _known: dict[tuple[int, bool], SnapshotFiles] = field(default_factory=dict)

    def of(self, table: Table, snapshot_id: int, *, whole: bool) -> SnapshotFiles:
        """Return the files that a snapshot has changed, or all that it has. Raise UserError if they
        cannot be read as a stream.
        """
        key = (snapshot_id, whole)
        if key not in self._known:
            snapshot = table.snapshot_by_id(snapshot_id)
            assert snapshot is not None, "it is in the history"
            with self.catalog.translated("read its snapshots"):
                found = (self._all if whole else self._changed)(table, snapshot)
            while len(self._known) >= _RETAINED_LISTINGS:
                self._known.pop(next(iter(self._known)))
            self._known[key] = found
        return self._known[key]

    def _all(self, table: Table, snapshot: Snapshot) -> SnapshotFiles:
        manifests = snapshot.manifests(table.io)
        if any(map(_lists_deletes, manifests)):
            raise UserError(
                f"table '{self.source}': Iceberg table {self.catalog.place} has delete files, so its"
                " rows cannot be read from the beginning",
                hint="Rewrite the table's data files, so that deletes are applied to them, or begin"
                " with 'source.offset' = 'latest'.",
            )
        entries = (entry for each in manifests for entry in each.fetch_manifest_entry(table.io))
        return SnapshotFiles(tuple(each.data_file for each in entries))

    def _changed(self, table: Table, snapshot: Snapshot) -> SnapshotFiles:
        from pyiceberg.manifest import ManifestEntryStatus
        from pyiceberg.table.snapshots import Operation

        operation = snapshot.summary.operation if snapshot.summary else Operation.OVERWRITE
        if operation is Operation.REPLACE:
            return SnapshotFiles()
        added, removed = [], []
        for entry in _own_entries(table, snapshot, deletes=False):
            if entry.status == ManifestEntryStatus.ADDED:
                added.append(entry.data_file)
            elif entry.status == ManifestEntryStatus.DELETED:
                removed.append(entry.data_file)
        changes_deletes = any(_own_entries(table, snapshot, deletes=True))
        if not self.is_changelog and (removed or changes_deletes):
            raise self._refusal(
                snapshot,
                f"deletes or rewrites rows (operation '{operation.value}'), but the source reads"
                " append-only tables",
                "Start a new job with another --name: with format = 'change_data_feed', or from the"
                " current rows of a table that is written by appending only. Compactions by"
                " `rewrite_data_files` are passed over.",
            )
        if changes_deletes:
            raise self._refusal(
                snapshot,
                f"deletes rows by delete files (operation '{operation.value}'), which cannot be read"
                " as a changelog",
                f"{_COPY_ON_WRITE} Then start a new job with another --name.",
            )
        if removed and any(map(_lists_deletes, snapshot.manifests(table.io))):
            raise self._refusal(
                snapshot,
                "removes data files while the table has delete files, so the rows that it deletes"
                " are not known",
                f"{_COPY_ON_WRITE} Rewrite its data files, so that deletes are applied to them, and"
                " start a new job with another --name.",
            )
        return SnapshotFiles((*removed, *added), len(removed))

    def _refusal(self, snapshot: Snapshot, what: str, hint: str) -> UserError:
        return UserError(
            f"table '{self.source}': snapshot {snapshot.snapshot_id} of Iceberg table"
            f" {self.catalog.place} {what}",
            hint=hint,
        )


def _own_entries(table: Table, snapshot: Snapshot, *, deletes: bool) -> Iterator[ManifestEntry]:
    """Return what a snapshot itself says of data files, or of delete files."""
    for manifest in snapshot.manifests(table.io):
        is_own = manifest.added_snapshot_id == snapshot.snapshot_id
        if is_own and _lists_deletes(manifest) is deletes:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.snapshot_id == snapshot.snapshot_id:
                    yield entry


def _lists_deletes(manifest: ManifestFile) -> bool:
    from pyiceberg.manifest import ManifestContent

    return bool(manifest.content != ManifestContent.DATA)
