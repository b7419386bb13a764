"""When the files of a `filesystem` sink are complete: rolled by size and age. Pure.

An epoch stages its rows as small objects, the parts. Without a policy each part becomes a file when
its epoch is committed. With one, the commit holds parts back, and a later commit merges those of a
folder into one file and makes that visible. So rows become visible exactly once, later.

Everything that is decided is in the commit log, and only there:

- The record of an epoch names the parts that it holds back, the objects that become visible, and
  the parts that were merged into these (`taken`). What is held is all parts on record, without the
  taken ones and without those of retracted epochs. That is a difference of sets: it does not depend
  on the order of the records, and a record is as large as what the epoch adds and takes, not as what
  is held. `since` is the oldest epoch of which a part is held; records before it are not needed.
- An epoch's record is created once. A retry, a zombie and a replay may decide differently, as with
  another policy, but they all complete the record that was first. Merged objects are written before
  the record, under unique names, and those that no record names are removed with other debris. So
  a zombie has nothing to publish after its epoch was closed, as without a policy.
- Between epochs, at the end of a job or of the input, a flush makes visible what is held. It is
  recorded beside the newest record, under a name that is created once, too: a process that has not
  created the newest record itself closes that name before its first commit. So parts are never
  taken by a flush of an old process and by a commit of a new one.
- A part that is a file by itself is not written again, so it is staged under an older epoch than the
  record that takes it. The newest record, and the flush after it, may not be carried out yet; a
  sweep keeps what these make visible until it is. Older records are carried out, because the next
  one is created after that.

A rolled file mixes epochs, in their order; its record has the rows and bytes of each. A rollback to
epoch N cuts the files that were rolled after N down to their rows of epochs up to N, in place, and
deletes a file that has none. Cutting the same file again changes nothing. The alternative is to
retain all parts as long as checkpoints are retained, which stores all rows twice, and to withdraw
rows that readers have seen although their epochs were not rolled back. Parts of dead epochs that
are held are deleted; held parts of older epochs are held still. A record names its files in full, so
all of this holds for files that were written before the table had another format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from resurgence.ids import Epoch

MOST_FILE_BYTES = 256 * 1024 * 1024
"""A file is complete at this size, because the task that merges it holds it in memory."""


@dataclass(frozen=True)
class RollingPolicy:
    """When a file is complete."""

    file_size: int | None = None
    interval: timedelta | None = None

    @property
    def most_bytes(self) -> int:
        return min(self.file_size or MOST_FILE_BYTES, MOST_FILE_BYTES)

    def is_old(self, opened_at: int, now: int) -> bool:
        """Return whether a file is complete whose first part was planned at a time, in
        microseconds.
        """
        return self.interval is not None and now - opened_at >= self.interval // timedelta(
            microseconds=1
        )


class Part(NamedTuple):
    """A staged object whose rows are not visible yet."""

    path: str
    rows: int
    bytes: int
    folder: str
    suffix: str
    """The suffix of its file. Parts with different ones cannot be merged."""
    epoch: Epoch
    planned_at: int
    """When its epoch was planned, in microseconds."""


@dataclass(frozen=True)
class Rolled:
    """What a commit makes visible, and what it holds back."""

    files: tuple[tuple[Part, ...], ...] = ()
    """The parts of each file; all have the same folder and suffix."""
    held: tuple[Part, ...] = ()


def roll(
    policy: RollingPolicy | None,
    held: Sequence[Part],
    added: Sequence[Part],
    suffix: str,
    now: int,
    *,
    everything: bool = False,
) -> Rolled:
    """Decide which parts become files. `suffix` is that of the sink; `now` is the planning time of
    the epoch; `everything`: no part is held back.

    Without a policy, each added part is a file of its own. So is a part with another suffix, which
    was held, or staged and not yet committed, when the table was changed.
    """
    alone = [each for each in held if each.suffix != suffix]
    merged = [each for each in held if each.suffix == suffix]
    alone += (each for each in added if policy is None or each.suffix != suffix)
    merged += (each for each in added if policy is not None and each.suffix == suffix)
    whole: list[tuple[Part, ...]] = []
    kept: list[Part] = []
    policy = policy or RollingPolicy(interval=timedelta(0))
    for parts in _by_folder(merged):
        current: list[Part] = []
        size = 0
        for each in parts:
            current.append(each)
            size += each.bytes
            if size >= policy.most_bytes:
                whole.append(tuple(current))
                current, size = [], 0
        if current and (everything or policy.is_old(current[0].planned_at, now)):
            whole.append(tuple(current))
        else:
            kept += current
    return Rolled((*whole, *((each,) for each in alone)), tuple(kept))


def _by_folder(parts: Iterable[Part]) -> list[list[Part]]:
    found: dict[str, list[Part]] = {}
    for each in parts:
        found.setdefault(each.folder, []).append(each)
    return [*found.values()]
