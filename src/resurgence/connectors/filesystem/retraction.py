"""The rollback of a `filesystem` sink: its files as they would be without the dead epochs.

Every step can be repeated. It is recorded when all are done, so one that was interrupted is begun
again by the next process.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from resurgence.connectors.commit_log import CommitLog, LogEntry
from resurgence.connectors.filesystem.file_names import FileNames, epoch_in
from resurgence.connectors.filesystem.log_end import LogEnds
from resurgence.connectors.filesystem.merging import Merger
from resurgence.connectors.filesystem.published_files import PublishedFiles
from resurgence.connectors.filesystem.records import Kept, Record, held_parts, oldest, surviving
from resurgence.errors import ObjectMissing
from resurgence.ids import Epoch, JobIdentity
from resurgence.storage.object_store import ObjectStore


@dataclass(frozen=True)
class Retraction:
    """Retracts epochs of a job."""

    store: ObjectStore
    log: CommitLog
    ends: LogEnds
    published: PublishedFiles
    merger_of: Callable[[str], Merger]
    """By the name of a file."""
    names: FileNames

    def run(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Retract the epochs after one up to another."""
        records = self._records(job, after, up_to)
        held = held_parts(records, [(after, up_to)])
        closing: dict[str, JsonValue] = {"since": oldest(held)} if held else {}
        mixed: dict[str, Kept] = {}
        for entry, record in records:
            if after < entry.epoch <= up_to and record.spans:
                mixed |= self._completed(job, entry.epoch, record, after)
        # Close the epochs before their files are removed: a zombie publishes nothing in between.
        self.log.close(job, after, up_to, closing)
        for each in mixed.values():
            self._cut(job, up_to, each)
        self.store.delete(path for path in self._files(job, after, up_to) if path not in mixed)
        self.log.mark_retracted(job, after, up_to, closing)

    def _records(
        self, job: JobIdentity, after: Epoch, up_to: Epoch
    ) -> list[tuple[LogEntry, Record]]:
        """Return the records of the dead epochs, and those that hold rows back."""
        newest = self.log.newest(job)
        since = self.published.parsed(newest.content).since if newest is not None else None
        if newest is not None and since is not None:
            # A flush of a zombie would make dead rows visible.
            closed = Record(since=since).content()
            self.log.fix_flush(job, newest.epoch, newest.after, closed)
        if newest is not None and newest.epoch <= after:
            # A flush of living rows that was begun: nobody looks for it behind later records.
            self.ends.completed(job)
        # If everything is retracted, no row of any file remains.
        first = Epoch(after + 1) if after else Epoch(up_to + 1)
        entries = self.log.entries(job, first if since is None else min(first, since))
        return [(entry, self.published.parsed(entry.content)) for entry in entries]

    def _completed(
        self, job: JobIdentity, epoch: Epoch, record: Record, after: Epoch
    ) -> dict[str, Kept]:
        """Return what remains of the files of a record, by name. A commit that was begun is
        completed, so that its older rows are in the file.
        """
        names = self.names.recorded(job, epoch, record)
        kept = {each.name: each for each in surviving(record, names, after)}
        moves = {path: name for path, name in zip(record.files, names, strict=True) if name in kept}
        self.published.publish(moves, is_over=True)
        self.store.delete(record.files)
        return kept

    def _files(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> list[str]:
        """Return the visible files that were written by these epochs, and after them."""
        found = {
            each.path: epoch_in(each.path, job)
            for each in self.store.list("")
            if not each.path.startswith(".")
        }
        return [
            path for path, epoch in found.items() if epoch is not None and after < epoch <= up_to
        ]

    def _cut(self, job: JobIdentity, epoch: Epoch, kept: Kept) -> None:
        """Cut a file to its first rows, in one step for its readers."""
        try:
            data = self.merger_of(kept.name).cut(self.store.read(kept.name), kept)
        except ObjectMissing:
            # A user has removed it.
            return
        if data is not None:
            path = f"{self.log.staged_prefix(job, epoch, 0)}-{uuid.uuid4().hex[:12]}"
            self.store.create(path, data)
            self.store.delete(self.store.move({path: kept.name}))
