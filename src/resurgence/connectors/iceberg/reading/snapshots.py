"""The position of an Iceberg source, and which snapshots follow it. Pure.

Sequence numbers of snapshots, which count the commits of a table from 1, tell a gap from the
beginning: some tools that expire snapshots let the oldest one that they leave have no parent.

A position is in a snapshot: before one of its files and rows, or behind all of them. The files of a
snapshot are those that it has added. Only where a job begins with everything that a table has, they
are all files of one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from resurgence.errors import UserError
from resurgence.state.records import Offset


@dataclass(frozen=True)
class SnapshotLink:
    """A snapshot and the one before it."""

    id: int
    parent: int | None
    at_millis: int
    sequence: int
    """0 in tables of format version 1, which do not count."""


@dataclass(frozen=True)
class TablePosition:
    """A position in the history of a table."""

    table: str
    """The UUID of the table: another one of the same name has another history."""
    snapshot: int | None
    """None before the first snapshot."""
    sequence: int = 0
    """The sequence number of that snapshot."""
    file: int | None = None
    """The number of the next file; None if all are read."""
    row: int = 0
    """The number of the next row in it."""
    whole: bool = False
    """The files are all that the snapshot refers to."""
    stop: int | None = None
    """The snapshot after which a bounded source ends."""
    is_bounded: bool = False

    @classmethod
    def of(cls, offset: Offset) -> TablePosition:
        """Return a position as it was recorded."""
        try:
            return cls(**offset)  # type: ignore[arg-type]
        except TypeError as error:
            raise UserError(
                f"{offset} is not a position in an Iceberg table",
                hint="Restore the checkpoint from a backup. It was edited by hand.",
            ) from error

    def as_offset(self) -> Offset:
        """Return the position as JSON, without what is at its default."""
        offset: Offset = {
            "table": self.table,
            "snapshot": self.snapshot,
            "sequence": self.sequence,
        }
        if self.file is not None:
            offset |= {"file": self.file, "row": self.row}
        if self.whole:
            offset["whole"] = True
        if self.is_bounded:
            offset |= {"stop": self.stop, "is_bounded": True}
        return offset

    def behind(self, snapshot: SnapshotLink) -> TablePosition:
        """Return the position behind all files of a snapshot."""
        return replace(
            self,
            snapshot=snapshot.id,
            sequence=snapshot.sequence,
            file=None,
            row=0,
            whole=False,
        )

    def inside(self, snapshot: SnapshotLink, file: int, row: int) -> TablePosition:
        """Return a position in a snapshot."""
        is_same = snapshot.id == self.snapshot
        return replace(
            self,
            snapshot=snapshot.id,
            sequence=snapshot.sequence,
            file=file,
            row=row,
            whole=self.whole and is_same,
        )

    @property
    def is_at_stop(self) -> bool:
        return self.is_bounded and self.snapshot == self.stop and self.file is None

    def __str__(self) -> str:
        if self.snapshot is None:
            return "the beginning"
        place = "" if self.file is None else f", file {self.file}, row {self.row}"
        return f"snapshot {self.snapshot}{place}"


def following(
    history: Mapping[int, SnapshotLink],
    head: int | None,
    after: int | None,
    after_sequence: int = 0,
) -> list[SnapshotLink] | None:
    """Return the snapshots after one, given with its sequence number, up to `head`, oldest first;
    None if it is not certain that these are all.
    """
    found: list[SnapshotLink] = []
    at = head
    while at != after:
        if at is None or at not in history:
            return None
        link = history[at]
        found.append(link)
        at = link.parent
        if at is None and link.sequence:
            if link.sequence != after_sequence + 1:
                return None
            break
    return found[::-1]


def newest_before(
    history: Mapping[int, SnapshotLink], head: int | None, millis: int
) -> SnapshotLink | None:
    """Return the newest snapshot in the history of `head` that is before an instant; None if there
    is none.
    """
    at = head
    while at is not None and at in history:
        if history[at].at_millis < millis:
            return history[at]
        at = history[at].parent
    return None


def is_complete(history: Mapping[int, SnapshotLink], head: int | None) -> bool:
    """Return whether no snapshot in the history of `head` has expired."""
    return following(history, head, None) is not None


@dataclass(frozen=True)
class FileRows:
    """Some rows of a file, by its number in the files of a snapshot."""

    snapshot: int
    file: int
    start: int
    end: int


def advanced(
    position: TablePosition, snapshot: SnapshotLink, counts: Sequence[int], most_rows: int
) -> tuple[list[FileRows], TablePosition]:
    """Return the next rows of a snapshot, whose files have these numbers of rows, and the position
    after them.
    """
    file, row = 0, 0
    if position.snapshot == snapshot.id and position.file is not None:
        file, row = position.file, position.row
    taken: list[FileRows] = []
    left = most_rows
    while file < len(counts):
        count = min(counts[file] - row, left)
        if count > 0:
            taken.append(FileRows(snapshot.id, file, row, row + count))
            left -= count
            row += count
        if row < counts[file]:
            return taken, position.inside(snapshot, file, row)
        file, row = file + 1, 0
    return taken, position.behind(snapshot)
