"""The live files of a state table, dealt to its subtasks: what was loaded, appended, exchanged.

It knows nothing of what is in them. Changes become durable with the next checkpoint.
"""

from __future__ import annotations

from resurgence.state.key_groups import KEY_GROUPS, FileSlice, deal, owned_groups
from resurgence.state.records import StateFile


class LiveFiles:
    """Which files a table has, and which subtask reads them."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._subtasks: tuple[tuple[FileSlice, ...], ...] = ((),) * parallelism

    @property
    def files(self) -> tuple[StateFile, ...]:
        """The live files, oldest first."""
        distinct = {each.file.path: each.file for slices in self._subtasks for each in slices}
        return tuple(sorted(distinct.values(), key=lambda each: (each.epoch, each.path)))

    def append(self, files: tuple[StateFile, ...]) -> None:
        """Make files part of the table."""
        added = deal(files, self._parallelism)
        self._subtasks = tuple(held + new for held, new in zip(self._subtasks, added, strict=True))

    def exchange(self, replaced: frozenset[str], files: tuple[StateFile, ...]) -> None:
        """Put files that hold the same rows in the place of others."""
        self._subtasks = tuple(
            tuple(each for each in slices if each.file.path not in replaced)
            for slices in self._subtasks
        )
        self.append(files)

    def drop_before(self, time: int) -> None:
        """Forget the files that hold nothing at this time or after it."""
        self._subtasks = tuple(
            tuple(each for each in slices if each.file.time_end >= time)
            for slices in self._subtasks
        )

    def small_files(self) -> frozenset[str]:
        """The files worth merging, as paths: all but those that are larger than what all smaller
        ones would come to. So a row is rewritten about as often as its table doubles.
        """
        by_size = sorted(self.files, key=lambda each: each.bytes)
        while by_size and by_size[-1].bytes * self._parallelism > sum(
            each.bytes for each in by_size[:-1]
        ):
            by_size.pop()
        return frozenset(each.path for each in by_size)

    def is_owned(self, subtask: int, group: str) -> str:
        """A condition in SQL: rows of this group are the subtask's."""
        owned = owned_groups(subtask, self._parallelism)
        signed = owned - 2**KEY_GROUPS if owned >= 2 ** (KEY_GROUPS - 1) else owned
        return f"shiftright({signed}L, {group}) & 1 = 1"

    def fullest_subtask(self) -> int:
        """How many live files the subtask with the most of them has."""
        return max(len(slices) for slices in self._subtasks)
