"""Compaction: many small files of a table become few, beside the epochs.

It is a Spark job of its own, in a thread of its own, over files that were live when it began. What
it wrote takes their place between two later epochs, and is durable with the next checkpoint; until
then no one names it, and a crash leaves debris for retention. Windows may close meanwhile: reading
is by bins, and those are behind the bound.

One compaction runs at a time, and only a table that has grown to twice its limit waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta

from resurgence.engine.time_table import Written
from resurgence.errors import TaskFailed
from resurgence.ids import Epoch, OperatorId


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
                f"the compaction of {running.operator} stands still: not done in {self._deadline}",
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
