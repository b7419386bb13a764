"""How often tasks found the rows of a state file on their machine, and how often they read them from
the object store. Reported by an accumulator of Spark, as in `task_reports`, so that it also holds on
a cluster, where a task may run on another machine than the one that wrote the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from resurgence.engine.tables import file_cache


@dataclass(frozen=True)
class CacheReads:
    """Reads of state files from the cache of a machine, and others."""

    hits: int = 0
    misses: int = 0
    bytes: int = 0
    """The size of the files that were read from the object store."""

    def plus(self, other: CacheReads) -> CacheReads:
        return CacheReads(
            self.hits + other.hits, self.misses + other.misses, self.bytes + other.bytes
        )

    def minus(self, other: CacheReads) -> CacheReads:
        return self.plus(CacheReads(-other.hits, -other.misses, -other.bytes))


@dataclass(frozen=True)
class CacheReports:
    """The reads of the tasks of one table. Serialised to the tasks."""

    _accumulator: Accumulator[CacheReads]

    @classmethod
    def of(cls, spark: SparkSession) -> CacheReports:
        return cls(spark.sparkContext.accumulator(CacheReads(), _Added()))

    @property
    def total(self) -> CacheReads:
        """What the tasks have reported so far."""
        return self._accumulator.value

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Report what this task reads meanwhile: a process runs one task at a time."""
        before = _of_process()
        yield
        found = _of_process().minus(before)
        if found != CacheReads():
            self._accumulator.add(found)


def _of_process() -> CacheReads:
    reads = file_cache.reads
    return CacheReads(reads.hits, reads.misses, reads.bytes)


class _Added(AccumulatorParam[CacheReads]):
    def zero(self, value: CacheReads) -> CacheReads:
        return CacheReads()

    def addInPlace(self, value1: CacheReads, value2: CacheReads) -> CacheReads:  # noqa: N802
        return value1.plus(value2)
