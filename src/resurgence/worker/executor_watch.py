"""Watches the executors of a Spark application on a cluster, in a thread of its own.

It lists them at an interval, reports each change, and reports starvation: Spark waits for executors
for ever, for example after its master was restarted and forgot the application.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from resurgence.engine.spark.executors import Executor, ExecutorReader, has_running


class ExecutorWatch:
    """The executors of one session."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        interval: timedelta,
        patience: timedelta,
        changed: Callable[[tuple[Executor, ...], tuple[Executor, ...]], None],
        starved: Callable[[], None],
    ) -> None:
        """`changed` is called with the lists before and after a change, `starved` when tasks have
        been waiting without any executor for as long as `patience`.
        """
        self._reader = ExecutorReader(spark)
        self._jobs = spark.sparkContext.statusTracker()
        self._interval = interval
        self._patience = patience
        self._changed = changed
        self._starved = starved
        self._ended = threading.Event()
        self.executors: tuple[Executor, ...] = ()

    def start(self) -> None:
        threading.Thread(target=self._run, name="executors", daemon=True).start()

    def end(self) -> None:
        """Report nothing more."""
        self._ended.set()

    def _run(self) -> None:
        served_at = time.monotonic()
        while time.monotonic() - served_at < self._patience.total_seconds():
            try:
                now = self._reader.read()
                if has_running(now) or not self._jobs.getActiveJobsIds():
                    served_at = time.monotonic()
            except (Py4JError, OSError, EOFError):
                # The JVM has ended, or Spark has stopped. Both are reported elsewhere.
                return
            if self._ended.is_set():
                return
            before, self.executors = self.executors, now
            if now != before:
                self._changed(before, now)
            self._ended.wait(self._interval.total_seconds())
        self._starved()
