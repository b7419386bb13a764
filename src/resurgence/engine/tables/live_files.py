"""The live files of a state table, assigned to its subtasks. Immutable.

It does not know the content of files. An epoch derives its own value, which replaces the table's
when the epoch is sealed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

from resurgence.state.key_groups import KEY_GROUPS, FileSlice, deal, owned_groups
from resurgence.state.records import StateFile


@dataclass(frozen=True)
class LiveFiles:
    """Which files a table has, and which subtask reads them."""

    subtasks: tuple[tuple[FileSlice, ...], ...]
    touched_at: int | None = None
    """The end of the newest file that was ever appended, even if that file was dropped."""

    @classmethod
    def none(cls, parallelism: int) -> LiveFiles:
        return cls(((),) * parallelism)

    @property
    def parallelism(self) -> int:
        return len(self.subtasks)

    @property
    def files(self) -> tuple[StateFile, ...]:
        """The live files, oldest first."""
        distinct = {each.file.path: each.file for slices in self.subtasks for each in slices}
        return tuple(sorted(distinct.values(), key=lambda each: (each.epoch, each.path)))

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(each.file.path for slices in self.subtasks for each in slices)

    def appended(self, files: tuple[StateFile, ...]) -> LiveFiles:
        """Return the value with new files."""
        added = deal(files, self.parallelism)
        known = [] if self.touched_at is None else [self.touched_at]
        return LiveFiles(
            tuple(held + new for held, new in zip(self.subtasks, added, strict=True)),
            max([*known, *(each.time_end for each in files)], default=None),
        )

    def exchanged(self, replaced: frozenset[str], files: tuple[StateFile, ...]) -> LiveFiles:
        """Return the value with `replaced` files exchanged for `files` with the same rows."""
        left = tuple(
            tuple(each for each in slices if each.file.path not in replaced)
            for slices in self.subtasks
        )
        return replace(self, subtasks=left).appended(files)

    def from_time(self, time: int) -> LiveFiles:
        """Return the value without files that end before `time`."""
        left = tuple(
            tuple(each for each in slices if each.file.time_end >= time) for slices in self.subtasks
        )
        return replace(self, subtasks=left)

    def only(self, subtasks: Container[int]) -> LiveFiles:
        """Return the value with the files of some subtasks; the others have none."""
        left = tuple(
            slices if number in subtasks else () for number, slices in enumerate(self.subtasks)
        )
        return replace(self, subtasks=left)

    def small_files(self) -> frozenset[str]:
        """Return the paths of files worth merging: all except the runs that are larger than all
        smaller ones merged. So a row is rewritten about as often as its table doubles.
        """
        by_size = sorted(runs(self.files), key=run_bytes)
        while by_size and run_bytes(by_size[-1]) * self.parallelism > sum(
            map(run_bytes, by_size[:-1])
        ):
            by_size.pop()
        return frozenset(file.path for run in by_size for file in run)

    def fullest_subtask(self) -> int:
        """Return the largest number of runs of a subtask."""
        return max(len(runs(each.file for each in slices)) for slices in self.subtasks)

    def is_owned(self, subtask: int, group: str) -> str:
        """Return an SQL condition: whether a row of key group `group` belongs to the subtask."""
        owned = owned_groups(subtask, self.parallelism)
        signed = owned - 2**KEY_GROUPS if owned >= 2 ** (KEY_GROUPS - 1) else owned
        return f"shiftright({signed}L, {group}) & 1 = 1"


def runs(files: Iterable[StateFile]) -> list[list[StateFile]]:
    """Group files by the task that wrote them: a task that writes much writes several. Compaction
    counts and compares runs, or a large table would always look like one of many files.
    """
    found: dict[tuple[int, int], list[StateFile]] = {}
    for each in files:
        found.setdefault((each.epoch, each.subtask), []).append(each)
    return list(found.values())


def run_bytes(run: Iterable[StateFile]) -> int:
    """Return the size of a run."""
    return sum(each.bytes for each in run)
