"""Which small files of a table are merged into larger ones. Pure.

A file is small if it has less than half of the target size. Merging all small files of a partition
whenever there are enough would write the same rows again and again, because the result is small for
a long time. So files are merged with others of about their size: tier n has the files of `min_files`
to the power of n bytes and more. A merge takes as many files of a tier, or as fill a file of the
target size; either way its result is in a higher tier, or no longer small. So a row is rewritten as
often as there are tiers, three times between 100 kB and 64 MB by tens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

RUN_BYTES = 1024 * 1024 * 1024
RUN_FILES = 10_000
"""How much one run merges at most, unless it is a single merge. The rest is left for later runs."""


@dataclass(frozen=True)
class SmallFile:
    """A data file that may be merged with others of its partition."""

    path: str
    bytes: int
    partition: Hashable = ()


@dataclass(frozen=True)
class MergePolicy:
    """When files are merged."""

    min_files: int
    """At least 2."""
    target_bytes: int

    @property
    def small_bytes(self) -> int:
        """Files are small below this size."""
        return self.target_bytes // 2


def plan_merges(files: Iterable[SmallFile], policy: MergePolicy) -> list[tuple[SmallFile, ...]]:
    """Return the files that one run merges: each tuple becomes one file. The partitions and tiers
    with the most files come first.
    """
    tiers: dict[Hashable, list[SmallFile]] = {}
    for each in files:
        if each.bytes < policy.small_bytes:
            tier = _tier(each.bytes, policy.min_files)
            tiers.setdefault((each.partition, tier), []).append(each)
    chosen: list[tuple[SmallFile, ...]] = []
    left_bytes, left_files = RUN_BYTES, RUN_FILES
    for tier_files in sorted(tiers.values(), key=len, reverse=True):
        # Names begin with the epoch, so rows stay roughly in the order in which they were written.
        for merge in _merges(sorted(tier_files, key=lambda each: each.path), policy):
            left_bytes -= sum(each.bytes for each in merge)
            left_files -= len(merge)
            if chosen and (left_bytes < 0 or left_files < 0):
                return chosen
            chosen.append(merge)
    return chosen


def _tier(size: int, base: int) -> int:
    """Return the logarithm, rounded down. That of a power must be exact."""
    tier = 0
    while size >= base:
        size //= base
        tier += 1
    return tier


def _merges(files: Sequence[SmallFile], policy: MergePolicy) -> Iterator[tuple[SmallFile, ...]]:
    """Fill files of the target size; yield what is left only if there are enough of it."""
    if len(files) < policy.min_files:
        return
    merge: list[SmallFile] = []
    size = 0
    for each in files:
        if size + each.bytes > policy.target_bytes or len(merge) == RUN_FILES:
            yield tuple(merge)
            merge, size = [], 0
        merge.append(each)
        size += each.bytes
    if len(merge) >= policy.min_files:
        yield tuple(merge)
