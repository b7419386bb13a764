"""Compaction: many small files of a table become few, beside the epochs.

It is a Spark job of its own, in a thread of its own, over files that were live when it began. What
it wrote takes their place between two later epochs, and is durable with the next checkpoint; until
then no one names it, and a crash leaves debris for retention. Windows may close meanwhile: reading
is by bins, and those are behind the bound.

One compaction runs at a time, and only a table that has grown to twice its limit waits for it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta

from resurgence.config import Settings
from resurgence.engine.epochs.epoch_run import EpochRun
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.operators.base import CompactionTask
from resurgence.engine.tables.state_writer import Written
from resurgence.errors import TaskFailed
from resurgence.faults import FaultInjector, FaultPoint
from resurgence.ids import Epoch, Generation, OperatorId


@dataclass(frozen=True)
class Compaction:
    """A compaction that has begun."""

    operator: OperatorId
    epoch: Epoch
    """The epoch that was next when it began: its files bear this number."""
    replaced: frozenset[str]
    """The paths of the files that it merges."""
    written: Future[Written]
    began: float


class Compactor:
    """Runs compactions, one after the other."""

    def __init__(self, deadline: timedelta) -> None:
        self._deadline = deadline
        self._running: Compaction | None = None

    @property
    def in_flight(self) -> Epoch | None:
        """Files of this epoch and later ones may belong to a compaction that no one names yet."""
        running = self._running
        return running.epoch if running else None

    @property
    def running(self) -> Compaction | None:
        """The one that has begun and is not adopted yet."""
        return self._running

    def start(
        self,
        operator: OperatorId,
        epoch: Epoch,
        replaced: frozenset[str],
        write: Callable[[], Written],
    ) -> None:
        """Begin one, unless one is running."""
        if self._running is not None:
            return
        future: Future[Written] = Future()
        self._running = Compaction(operator, epoch, replaced, future, time.monotonic())
        threading.Thread(
            target=_settle, args=(future, write), name="compaction", daemon=True
        ).start()

    def take(self, *, wait: bool) -> Compaction | None:
        """The one that is done, if there is; its failure is raised, and so is standing still."""
        running = self._running
        if running is None:
            return None
        left = self._deadline.total_seconds() - (time.monotonic() - running.began)
        try:
            running.written.result(max(0.0, left) if wait else 0.0)
        except TimeoutError as error:
            if left > 0 and not wait:
                return None
            raise TaskFailed(
                f"the compaction of {running.operator} is not done after {self._deadline}",
                hint="the job is recovered; a longer pipeline.epoch_timeout gives it more time",
            ) from error
        return running

    def forget(self) -> None:
        """What it wrote is named by a checkpoint, or of no use any more: the next one may begin."""
        self._running = None


def _settle(future: Future[Written], write: Callable[[], Written]) -> None:
    try:
        future.set_result(write())
    except BaseException as error:
        future.set_exception(error)


class TableCompaction:
    """Which table of a pipeline is compacted, and how what was written comes into it."""

    def __init__(
        self, pipeline: Pipeline, settings: Settings, generation: Generation, faults: FaultInjector
    ) -> None:
        self._pipeline = pipeline
        self._limit = settings.checkpoint.compact_files
        self._generation = generation
        self._faults = faults
        self._compactor = Compactor(settings.pipeline.epoch_timeout)

    @property
    def in_flight(self) -> Epoch | None:
        """Retention must not touch unnamed files of this epoch and later ones."""
        return self._compactor.in_flight

    def files_in_use(self) -> frozenset[str]:
        """The paths of all files that may still be read. For other threads."""
        running = self._compactor.running
        replaced = running.replaced if running else frozenset()
        return replaced.union(*(each.paths for each in self._pipeline.live_files().values()))

    def adopt(self, run: EpochRun) -> Written | None:
        """Put what is done into its table, as an effect of an epoch; when that is sealed, it is
        `settled`. If all that it merges has expired, its result is dropped, even if it failed.
        """
        running = self._compactor.running
        if running is None:
            return None
        tables = self._pipeline.live_files()
        live = tables[running.operator]
        if not running.replaced & live.paths:
            self._compactor.forget()
            return None
        crowded = any(each.fullest_subtask() > 2 * self._limit for each in tables.values())
        done = self._compactor.take(wait=crowded)
        if done is None:
            return None
        written = done.written.result()
        run.effects.live[running.operator] = live.exchanged(done.replaced, written.files)
        return written

    def settled(self) -> None:
        """What was adopted is named by a checkpoint."""
        self._compactor.forget()

    def begin(
        self, epoch: Epoch, watermark_of: Callable[[OperatorId], int | None], time: int
    ) -> None:
        """Begin to merge the files of a table that has many. The new ones are invisible until they
        are adopted.
        """
        if self._compactor.running is not None:
            return
        for operator in self._pipeline.operators.values():
            if operator.live is None or operator.live.fullest_subtask() <= self._limit:
                continue
            task = operator.compaction(time, watermark_of(operator.id))
            if task is not None:
                write = functools.partial(self._write, task, epoch)
                self._compactor.start(operator.id, epoch, task.replaced, write)
                return

    def _write(self, task: CompactionTask, epoch: Epoch) -> Written:
        written = task.write(epoch, self._generation)
        self._faults.hit(FaultPoint.COMPACTION_MID, epoch)
        return written
