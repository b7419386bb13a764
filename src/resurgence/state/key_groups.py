"""Key groups: keys are hashed into a fixed number of groups, and each subtask owns a set of them.

The number is part of the checkpoint format: a row's group never changes, only its owner. Therefore
rescaling does not rewrite state: the metadata of a file has the set of its groups, and each new
subtask reads the files whose groups overlap its own.

A set and not a range, because Spark decides which rows a task gets: shuffle partition p of P has
the rows whose hash is p modulo P, and for a P that divides KEY_GROUPS these are whole groups. If
the parallelism is a power of two, P equals it at no extra cost; any other parallelism shuffles into
a few more partitions and coalesces neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable

from resurgence.state.records import Part, StateFile

KEY_GROUPS = 64
"""The number of groups, and therefore the maximum parallelism."""

_PARTITIONS_PER_SUBTASK = 4


class FileSlice(Part):
    """A file as one subtask reads it; `partial`: rows of groups that others own must be skipped."""

    file: StateFile
    partial: bool


def shuffle_partitions(parallelism: int) -> int:
    """Return the number of shuffle partitions of a stateful operator, a divisor of KEY_GROUPS."""
    power = 1 << (parallelism - 1).bit_length()
    return power if power == parallelism else min(KEY_GROUPS, power * _PARTITIONS_PER_SUBTASK)


def owned_groups(subtask: int, parallelism: int) -> int:
    """Return the key groups of a subtask as a bit set. Spark's coalesce assigns shuffle partitions
    in the same way.
    """
    partitions = shuffle_partitions(parallelism)
    owned = range(subtask * partitions // parallelism, (subtask + 1) * partitions // parallelism)
    return sum(1 << group for group in range(KEY_GROUPS) if group % partitions in owned)


def subtask_of(group: int, parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return next(each for each in range(parallelism) if owned_groups(each, parallelism) >> group & 1)


def deal(files: Iterable[StateFile], parallelism: int) -> tuple[tuple[FileSlice, ...], ...]:
    """Assign to each subtask the files that contain its keys."""
    listed = tuple(files)
    return tuple(
        tuple(
            FileSlice(file=file, partial=bool(file.key_groups & ~owned))
            for file in listed
            if file.key_groups & owned
        )
        for owned in (owned_groups(subtask, parallelism) for subtask in range(parallelism))
    )
