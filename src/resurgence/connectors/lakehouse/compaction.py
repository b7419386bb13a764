"""Compaction of the tables of lakehouse sinks: merges small files beside the epochs.

A run begins after the commit of an epoch, in a thread of its own: it looks at the table, decides
which files are merged (`merge_plan`), and lets the table merge and replace them. Only one run at a
time is under way in a process, whatever sinks it has.

A run changes no rows, so nothing depends on it: no epoch waits for it, a failure is logged and tried
again later, and a run of a process that no longer owns the job is harmless. What it must guarantee
is the table's part (`CompactedTable.merge`): files are replaced all at once, and only if they are
still part of the table as they were read.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from pyspark.sql import SparkSession

from resurgence.connectors.lakehouse.merge_plan import MergePolicy, SmallFile, plan_merges
from resurgence.errors import ResurgenceError, SinkError, error_in_traceback

log = logging.getLogger(__name__)

_STOP_DEADLINE = timedelta(seconds=5)
_STOP_POLL = timedelta(seconds=0.5)
_LONGEST_REASON = 300
_COMMIT_DEADLINE = timedelta(minutes=10)
"""How long the commit of an epoch may take before a compaction gives up."""
_ATTEMPT_PAUSE = timedelta(milliseconds=50)
_under_way = threading.Lock()


@contextmanager
def commit_turn(commits: threading.Lock, table: str, attempt: int) -> Iterator[None]:
    """Hold the lock of the commits to a table for one attempt of a compaction. It is free between
    attempts, because requests that time out take minutes, and no epoch may wait for several.
    """
    if attempt:
        # Locks are not fair: without a pause, an epoch that waits would not get it.
        time.sleep(_ATTEMPT_PAUSE.total_seconds())
    if not commits.acquire(timeout=_COMMIT_DEADLINE.total_seconds()):
        raise SinkError(f"the commit of an epoch to {table} has not ended in time")
    try:
        yield
    finally:
        commits.release()


class CompactedTable(Protocol):
    """A table whose files are merged. All calls come from one thread at a time."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def small_files(self, below: int) -> Sequence[SmallFile]:
        """Look at the newest version of the table, and return the files with fewer bytes that may be
        merged.
        """
        ...

    def merge(self, spark: SparkSession, merges: Sequence[tuple[SmallFile, ...]]) -> bool:
        """Write the rows of each merge as new files, and replace its files by them, in one commit
        that changes no rows. Leave out merges of which a file is no longer part of the table as it
        was read, and delete what was written for them. Return whether all were replaced.
        """
        ...


@dataclass(frozen=True)
class Pace:
    """How often runs begin."""

    pause: timedelta = timedelta(seconds=1)
    """After a run."""
    idle_share: int = 10
    """A run that found nothing to merge is followed by a pause that is so many times as long as it
    took, because looking at a large table takes time, too.
    """
    retry: timedelta = timedelta(minutes=1)
    """After one that failed, or lost files to other writers."""
    deadline: timedelta = timedelta(minutes=30)
    """A run is interrupted after that long."""


class Compaction:
    """Merges the small files of a table, one run after the other."""

    def __init__(
        self, table: CompactedTable, policy: MergePolicy, pace: Pace | None = None
    ) -> None:
        self._table = table
        self._policy = policy
        self._pace = pace or Pace()
        self._tag = f"compaction-{uuid.uuid4().hex}"
        self._thread: threading.Thread | None = None
        self._due_at = self._began_at = time.monotonic()
        self._is_stopped = False

    def after_commit(self, spark: SparkSession) -> None:
        """Begin a run, if one is due and none is under way in this process. Returns at once."""
        now = time.monotonic()
        if self._thread is not None and self._thread.is_alive():
            if now - self._began_at > self._pace.deadline.total_seconds():
                spark.interruptTag(self._tag)
            return
        if self._is_stopped or now < self._due_at or not _under_way.acquire(blocking=False):
            return
        self._began_at = now
        self._thread = threading.Thread(
            target=self._run, args=(spark,), name="lakehouse-compaction", daemon=True
        )
        self._thread.start()

    def wait(self, deadline: timedelta) -> bool:
        """Wait for the run under way; return whether it has ended."""
        if self._thread is not None:
            self._thread.join(deadline.total_seconds())
        return self._thread is None or not self._thread.is_alive()

    def stop(self, spark: SparkSession) -> None:
        """Interrupt the run under way, and begin no other."""
        self._is_stopped = True
        ends_at = time.monotonic() + _STOP_DEADLINE.total_seconds()
        while self._thread is not None and self._thread.is_alive():
            if time.monotonic() > ends_at:
                log.warning("compaction of %s has not stopped in time", self._table.name)
                return
            # Again and again: an interrupt does not affect a Spark job that starts after it.
            spark.interruptTag(self._tag)
            self._thread.join(_STOP_POLL.total_seconds())

    def _run(self, spark: SparkSession) -> None:
        wait = self._pace.retry
        try:
            spark.addTag(self._tag)
            files = self._table.small_files(self._policy.small_bytes)
            merges = plan_merges(files, self._policy)
            if not merges:
                took = timedelta(seconds=time.monotonic() - self._began_at)
                wait = max(self._pace.pause, self._pace.idle_share * took)
            elif not self._is_stopped and self._table.merge(spark, merges):
                wait = self._pace.pause
        except Exception as error:
            # It must not fail the job, whatever it is.
            if not self._is_stopped:
                log.warning(
                    "compaction of %s failed: %s; it will be tried again in %s",
                    *(self._table.name, _reason(error), wait),
                )
        finally:
            self._due_at = time.monotonic() + wait.total_seconds()
            _under_way.release()


def _reason(error: Exception) -> str:
    own = error if isinstance(error, ResurgenceError) else error_in_traceback(str(error))
    text = own.message if own is not None else str(error).strip().split("\n", 1)[0]
    return text[:_LONGEST_REASON] or type(error).__name__
