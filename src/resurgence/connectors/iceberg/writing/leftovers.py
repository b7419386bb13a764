"""Data files that were staged, or rewritten, and never became part of their table.

They are looked for by name, in the folder of a job, among recent epochs. A file is deleted only if
no record fixes it and no snapshot refers to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from resurgence.connectors.commit_log import CommitLog
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.catalogs.store_location import located_store
from resurgence.connectors.iceberg.writing.data_files import data_location
from resurgence.connectors.iceberg.writing.marker import Writer
from resurgence.connectors.lakehouse.data_files import epoch_of
from resurgence.ids import Epoch

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_FIRST_SWEEP_EPOCHS = 1000
"""How far back the first sweep of a process looks."""


class Leftovers:
    """The leftovers of one sink. Sweeps run in a thread of their own."""

    def __init__(self, catalog: IcebergCatalog, folder: str) -> None:
        """`folder` is that of its data files, under the table's."""
        self._catalog = catalog
        self._folder = folder
        self._lock = threading.Lock()
        self._expected: frozenset[str] = frozenset()
        self._swept_up_to: Epoch | None = None

    def expect(self, locations: Iterable[str]) -> None:
        """Take note of files that are being committed. It saves a look at the snapshots later."""
        with self._lock:
            self._expected = self._expected.union(locations)

    def sweep(self, writer: Writer, log: CommitLog, epoch: Epoch) -> None:
        """Delete the leftovers of epochs up to one, which are all committed."""
        table = self._catalog.find()
        if table is None:
            return
        first = self._swept_up_to
        if first is None:
            first = Epoch(max(0, epoch - _FIRST_SWEEP_EPOCHS))
        root = data_location(table)
        store, path = located_store(f"{root}/{self._folder}/{writer.job}", table.io.properties)
        base = path.removesuffix(f"{self._folder}/{writer.job}")
        listed = store.list(path, after=f"{path}/{first:010}")
        past = {
            f"{root}/{each.path.removeprefix(base)}": each.path
            for each in listed
            if (of := epoch_of(each.path)) is not None and of <= epoch
        }
        doubtful = past.keys() - self._expected
        if doubtful:
            fixed = _fixed(writer, log, {epoch_of(each) for each in doubtful}, root)
            doubtful -= fixed
        if doubtful:
            oldest = min(of for each in doubtful if (of := epoch_of(each)) is not None)
            with self._catalog.translated("read its snapshots"):
                doubtful -= _referred(table, writer, oldest)
        store.delete(past[each] for each in doubtful)
        self._swept_up_to = epoch
        with self._lock:
            self._expected = frozenset(
                each for each in self._expected if (epoch_of(each) or epoch) > epoch
            )


def _fixed(writer: Writer, log: CommitLog, epochs: Iterable[Epoch | None], root: str) -> set[str]:
    """Return the files that the records of some epochs fix."""
    found: set[str] = set()
    for each in epochs:
        content = (log.fixed(writer.job, each) if each is not None else None) or {}
        files = content.get("files")
        found.update(f"{root}/{path}" for path in (files if isinstance(files, list) else ()))
    return found


def _referred(table: Table, writer: Writer, oldest: Epoch) -> set[str]:
    """Return the data files that any snapshot refers to, without those that are older than an
    epoch: they cannot have files of it.
    """
    ordered = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    due: list[Snapshot] = []
    before = -1
    for snapshot in ordered:
        due.append(snapshot)
        epoch = writer.epoch_of(snapshot.summary.additional_properties if snapshot.summary else {})
        if epoch is not None and epoch < oldest:
            due.clear()
            # Tables of format version 1 have no sequence numbers.
            before = snapshot.sequence_number or -1
    manifests = {
        each.manifest_path: each
        for of in due
        for each in of.manifests(table.io)
        if (each.sequence_number or 0) > before
    }
    return {
        entry.data_file.file_path
        for each in manifests.values()
        for entry in each.fetch_manifest_entry(table.io, discard_deleted=False)
    }
