"""Key groups: keys are hashed into a fixed number of groups, and a subtask owns a contiguous range of them.

The number is part of the checkpoint format: a row's group never changes, only who owns it. That is why another
parallelism needs no rewriting: a file carries the range it holds, and each new subtask reads the files that overlap
its own range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from resurgence.state.records import KeyGroups, Part, StateFile

KEY_GROUPS = 64
"""How many groups there are, and so the highest parallelism."""


class FileSlice(Part):
    """A file as one subtask reads it; `partial`: rows outside the subtask's range must be left out."""

    file: StateFile
    partial: bool


def owned_groups(subtask: int, parallelism: int) -> KeyGroups:
    """The key groups of a subtask. Spark's coalesce of KEY_GROUPS shuffle partitions deals them the same way."""
    return KeyGroups(
        start=subtask * KEY_GROUPS // parallelism,
        end=(subtask + 1) * KEY_GROUPS // parallelism,
    )


def deal(
    files: Iterable[StateFile], parallelism: int
) -> tuple[tuple[FileSlice, ...], ...]:
    """For each subtask, the files that hold its keys."""
    listed: Sequence[StateFile] = tuple(files)
    dealt = []
    for subtask in range(parallelism):
        owned = owned_groups(subtask, parallelism)
        dealt.append(
            tuple(
                FileSlice(file=file, partial=not file.key_groups.within(owned))
                for file in listed
                if file.key_groups.overlaps(owned)
            )
        )
    return tuple(dealt)
