"""Compaction: merges many small files of a state table into few, in the background.

It is a Spark job in its own thread, over files that were live when it began. Its files replace them
between two later epochs, and are durable with the next checkpoint. Until then nothing references
them, and a crash leaves debris for retention. Windows may close meanwhile: readers select bins, and
the bins of closed windows are no longer read.

One compaction runs at a time. Epochs wait for it only if a table has grown to twice its limit, and
none waits longer than the previous epoch took: a lookup in more files is slower, a stall is worse.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta

from resurgence.config import Settings
from resurgence.engine.epochs.epoch_run import EpochRun
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.operators.base import CompactionTask
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.state_writer import Written
from resurgence.errors import TaskFailed
from resurgence.faults import FaultInjector, FaultPoint
from resurgence.ids import Epoch, Generation, OperatorId


@dataclass(frozen=True)
class Compaction:
    """A started compaction."""

    operator: OperatorId
    epoch: Epoch
    """The next epoch at its start. Its files have this number."""
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
        """Files from this epoch on may belong to a compaction that is not referenced yet."""
        running = self._running
        return running.epoch if running else None

    @property
    def running(self) -> Compaction | None:
        """The compaction that was started and is not adopted yet."""
        return self._running

    def start(
        self,
        operator: OperatorId,
        epoch: Epoch,
        replaced: frozenset[str],
        write: Callable[[], Written],
    ) -> None:
        """Start a compaction, unless one is running."""
        if self._running is not None:
            return
        future: Future[Written] = Future()
        self._running = Compaction(operator, epoch, replaced, future, time.monotonic())
        threading.Thread(
            target=_settle, args=(future, write), name="compaction", daemon=True
        ).start()

    def take(self, patience: timedelta) -> Compaction | None:
        """Return the compaction if it finishes within `patience`. Raise its failure, or TaskFailed
        after its deadline.
        """
        running = self._running
        if running is None:
            return None
        left = self._deadline.total_seconds() - (time.monotonic() - running.began)
        try:
            running.written.result(max(0.0, min(left, patience.total_seconds())))
        except TimeoutError as error:
            if left > patience.total_seconds():
                return None
            raise TaskFailed(
                f"compaction of {running.operator} did not finish within {self._deadline}",
                hint="Raise pipeline.epoch_timeout if this repeats. The job will retry.",
            ) from error
        return running

    def clear(self) -> None:
        """Allow the next compaction: a checkpoint references the result, or it is obsolete."""
        self._running = None


def _settle(future: Future[Written], write: Callable[[], Written]) -> None:
    try:
        future.set_result(write())
    except BaseException as error:
        future.set_exception(error)


def crowded(tables: Mapping[OperatorId, LiveFiles], limit: int) -> list[OperatorId]:
    """Return the operators whose table has more files than the limit, the fullest first. In another
    order one table that is always over the limit would starve the others.
    """
    runs = {operator: live.fullest_subtask() for operator, live in tables.items()}
    return sorted((each for each in runs if runs[each] > limit), key=lambda each: -runs[each])


class TableCompaction:
    """Chooses the table to compact, and adopts the result."""

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
        """Retention must not delete unreferenced files from this epoch on."""
        return self._compactor.in_flight

    def files_in_use(self) -> frozenset[str]:
        """Return the paths of all files that may still be read. Thread-safe."""
        running = self._compactor.running
        replaced = running.replaced if running else frozenset()
        return replaced.union(*(each.paths for each in self._pipeline.live_files().values()))

    def adopt(self, run: EpochRun, patience: timedelta) -> Written | None:
        """Add the result of a finished compaction to its table, as an effect of an epoch; call
        `settled` when that is sealed. If a table is crowded, wait for it as long as `patience`. If
        all files that it merges have expired, its result is dropped, even if it failed.
        """
        running = self._compactor.running
        if running is None:
            return None
        tables = self._pipeline.live_files()
        live = tables[running.operator]
        if not running.replaced & live.paths:
            self._compactor.clear()
            return None
        done = self._compactor.take(patience if crowded(tables, 2 * self._limit) else timedelta(0))
        if done is None:
            return None
        written = done.written.result()
        run.effects.live[running.operator] = live.exchanged(done.replaced, written.files)
        return written

    def settled(self) -> None:
        """Note that a checkpoint references the adopted result."""
        self._compactor.clear()

    def begin(
        self, epoch: Epoch, watermark_of: Callable[[OperatorId], int | None], time: int
    ) -> None:
        """Start to merge the files of the fullest table that has too many. The new files are
        invisible until they are adopted.
        """
        if self._compactor.running is not None:
            return
        operators = self._pipeline.operators
        for each in crowded(self._pipeline.live_files(), self._limit):
            operator = operators[each]
            task = operator.compaction(time, watermark_of(operator.id))
            if task is not None:
                write = functools.partial(self._write, task, epoch)
                self._compactor.start(operator.id, epoch, task.replaced, write)
                return

    def _write(self, task: CompactionTask, epoch: Epoch) -> Written:
        written = task.write(epoch, self._generation)
        self._faults.hit(FaultPoint.COMPACTION_MID, epoch)
        return written
