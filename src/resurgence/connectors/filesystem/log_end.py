"""The end of the commit log of a `filesystem` sink: what is held back, and whether another process can
still flush it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from resurgence.connectors.commit_log import CommitLog, EntryKind
from resurgence.connectors.filesystem.file_names import FileNames
from resurgence.connectors.filesystem.published_files import PublishedFiles
from resurgence.connectors.filesystem.records import Record, held_parts, oldest
from resurgence.connectors.filesystem.rolling import Part
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity
from resurgence.storage.object_store import ObjectStore


@dataclass(frozen=True)
class LogEnd:
    """The end of the commit log of a job."""

    newest: Epoch = NO_EPOCH
    after: Epoch | None = None
    """If the newest record is that of a retraction: as there."""
    held: tuple[Part, ...] = ()
    is_ours: bool = True
    """No other process can flush after the newest record: this one has created it, or the flush
    is recorded.
    """
    moves: Mapping[str, str] = field(default_factory=dict)
    """The final names of the staged objects that the newest record and the flush after it make
    visible, if another process may have died before it did that.
    """

    def committed(self, epoch: Epoch, record: Record, *, is_ours: bool) -> LogEnd:
        """Return the end after the commit of an epoch."""
        if epoch <= self.newest:
            return self
        held = _without(self.held, record.taken) + record.added(epoch)
        return LogEnd(epoch, None, held, is_ours)

    def flushed(self, record: Record) -> LogEnd:
        """Return the end after a flush."""
        return replace(self, held=_without(self.held, record.taken), is_ours=True)


@dataclass(frozen=True)
class LogEnds:
    """Reads the ends of a commit log, and closes them to flushes of other processes."""

    store: ObjectStore
    log: CommitLog
    published: PublishedFiles
    names: FileNames

    def read(self, job: JobIdentity) -> LogEnd:
        """Return the end of the log."""
        return self._read(job)[0]

    def completed(self, job: JobIdentity) -> LogEnd:
        """Return the end of the log, with its last flush completed."""
        end, flush = self._read(job)
        if flush is not None:
            moves = dict(zip(flush.files, flush.names, strict=True))
            self.store.delete(self.published.publish(moves, is_over=True))
        return end

    def _read(self, job: JobIdentity) -> tuple[LogEnd, Record | None]:
        """Return the end of the log, and the flush after its newest record if there is one."""
        newest = self.log.newest(job)
        if newest is None:
            return LogEnd(), None
        since = self.published.parsed(newest.content).since
        entries = [newest]
        if since is not None or newest.kind is EntryKind.FLUSH:
            entries = self.log.entries(job, newest.epoch if since is None else since)
        # What was recorded meanwhile, by another sink of this job, counts the next time.
        records = [
            (entry, self.published.parsed(entry.content))
            for entry in entries
            if entry.epoch <= newest.epoch
        ]
        last = [
            (entry, record)
            for entry, record in records
            if (entry.epoch, entry.after) == (newest.epoch, newest.after)
        ]
        moves: dict[str, str] = {}
        for entry, record in last:
            names = self.names.recorded(job, entry.epoch, record)
            moves |= zip(record.files, names, strict=True)
        flush = next((each for entry, each in last if entry.kind is EntryKind.FLUSH), None)
        held = () if since is None else held_parts(records)
        return LogEnd(newest.epoch, newest.after, held, flush is not None, moves), flush

    def closed_to_flushes(self, job: JobIdentity, end: LogEnd) -> LogEnd:
        """Close the newest record to flushes of other processes. If there was one, it counts."""
        closed = Record(since=oldest(end.held))
        fixed, _ = self.log.fix_flush(job, end.newest, end.after, closed.content())
        found = self.published.parsed(fixed)
        self.store.delete(self.published.publish(dict(zip(found.files, found.names, strict=True))))
        return end.flushed(found)


def _without(parts: Sequence[Part], taken: Collection[str]) -> tuple[Part, ...]:
    gone = {*taken}
    return tuple(each for each in parts if each.path not in gone)
