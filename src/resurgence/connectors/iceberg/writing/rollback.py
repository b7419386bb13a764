"""What a rollback removes from an Iceberg table, and when it cannot. Pure.

Rows that were appended are removed with their files, whose names have the epoch, also if others have
written since. Files that were merged with others cannot be taken apart.

An upsert has replaced files, so the files before it must come back: those of the newest snapshot
before the dead epochs. That is right only if every snapshot since then is the job's own, or has
changed no rows. Appended rows that a compaction has merged are removed in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from resurgence.connectors.iceberg.writing.marker import Writer
from resurgence.errors import SinkConflict
from resurgence.ids import Epoch

_HINT = (
    "Restore the table by hand, as with `rollback_to_snapshot`, and run again: epochs whose rows are"
    " gone are skipped. Or start over with another --name and another table."
)


@dataclass(frozen=True)
class SnapshotOrigin:
    """A snapshot, the one before it, and the properties that say who wrote it."""

    id: int
    parent: int | None
    summary: Mapping[str, str]
    is_first: bool
    """It is the first of its table. If not, a missing parent has expired."""
    moves_rows: bool = False
    """It has changed no rows, as a compaction."""


def dead_snapshots(
    newest_first: Sequence[SnapshotOrigin], writer: Writer, after: Epoch, up_to: Epoch
) -> list[int]:
    """Return the places of the snapshots of dead epochs."""
    return [
        number
        for number, each in enumerate(newest_first)
        if (epoch := writer.epoch_of(each.summary)) is not None and after < epoch <= up_to
    ]


def is_undone(newest_first: Sequence[SnapshotOrigin], writer: Writer, after: Epoch) -> bool:
    """Return whether a history without snapshots of dead epochs proves that their rows are gone: it
    reaches back to before them.
    """
    epochs = [writer.epoch_of(each.summary) for each in newest_first]
    is_whole = not newest_first or newest_first[-1].is_first
    return is_whole or any(each is not None and each <= after for each in epochs)


def foreign_snapshot(
    newest_first: Sequence[SnapshotOrigin], dead: Sequence[int]
) -> SnapshotOrigin | None:
    """Return a snapshot since the oldest dead one in which others have changed rows; None if there
    is none. Compactions are undone with the dead ones.
    """
    since = newest_first[: dead[-1]] if dead else ()
    return next(
        (each for number, each in enumerate(since) if number not in dead and not each.moves_rows),
        None,
    )


def snapshot_before(
    table: str, newest_first: Sequence[SnapshotOrigin], writer: Writer, after: Epoch, up_to: Epoch
) -> int | None:
    """Return the snapshot whose content is restored; None if it is the empty table. Snapshots are
    those in the history of the table that have not expired. Raise SinkConflict if others wrote
    since, or it has expired.
    """
    dead = dead_snapshots(newest_first, writer, after, up_to)
    if not dead and is_undone(newest_first, writer, after):
        return newest_first[0].id if newest_first else None
    foreign = foreign_snapshot(newest_first, dead)
    if foreign is not None:
        raise SinkConflict(
            f"epochs {after + 1} to {up_to} cannot be retracted from Iceberg table {table}: snapshot"
            f" {foreign.id} was written by others since",
            hint=_HINT,
        )
    oldest = newest_first[dead[-1]] if dead else newest_first[-1]
    if not oldest.is_first and oldest.parent not in {each.id for each in newest_first}:
        raise SinkConflict(
            f"epochs {after + 1} to {up_to} cannot be retracted from Iceberg table {table}: the"
            " snapshot before them has expired",
            hint=_HINT,
        )
    return oldest.parent


def require_all_live(
    table: str, appended: Collection[str], live: Collection[str], after: Epoch, up_to: Epoch
) -> None:
    """Raise SinkConflict if some of the files that were appended are gone while others are live:
    then somebody has merged or rewritten rows of these epochs.
    """
    missing = sorted(set(appended) - set(live))
    if missing:
        raise SinkConflict(
            f"epochs {after + 1} to {up_to} cannot be retracted from Iceberg table {table}: others"
            f" have merged or rewritten {len(missing)} of their files, such as {missing[0]}",
            hint=_HINT,
        )
