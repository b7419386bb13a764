"""The Spark application of a worker on a cluster, from its registration to its release.

A cluster can keep a driver waiting for ever: for its registration, for a first executor, or for
executors after its master forgot the application. Each wait ends after a part of
`pipeline.start_timeout`, before the controller gives up on the worker.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

from pyspark.sql import SparkSession

from resurgence.config import PipelineSettings
from resurgence.engine.spark.executors import Executor, check_executors, has_running
from resurgence.errors import ClusterUnavailable
from resurgence.worker.executor_watch import ExecutorWatch

_SHARE = 0.75
"""The part of `pipeline.start_timeout` after which a cluster that grants nothing is reported."""
_RELEASE_WITHIN = timedelta(seconds=10)

ExecutorsChanged = Callable[[tuple[Executor, ...], tuple[Executor, ...]], None]


class ClusterApplication:
    """One session on a cluster, and its executors."""

    def __init__(
        self,
        master: str,
        settings: PipelineSettings,
        changed: ExecutorsChanged,
        unavailable: Callable[[ClusterUnavailable], None],
    ) -> None:
        """`changed` is called with the executors before and after a change, `unavailable` if the
        cluster does not run our tasks in time.
        """
        self._master = master
        self._interval = settings.heartbeat_interval
        self._patience = settings.start_timeout * _SHARE
        self._changed = changed
        self._unavailable = unavailable
        self._spark: SparkSession | None = None
        self._watch: ExecutorWatch | None = None

    @property
    def executors(self) -> tuple[Executor, ...]:
        """The executors, with the newest removed ones."""
        return self._watch.executors if self._watch is not None else ()

    @contextlib.contextmanager
    def deadline(self) -> Iterator[None]:
        """Report the cluster if what is inside takes too long: to register, and to `open`."""
        timer = threading.Timer(self._patience.total_seconds(), self._report)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def open(self, spark: SparkSession) -> None:
        """Watch the executors of a session that is registered, and check that they can run our
        tasks. Raises what Spark raises if they cannot.
        """
        self._spark = spark
        self._watch = ExecutorWatch(
            spark,
            interval=self._interval,
            patience=self._patience,
            changed=self._changed,
            starved=self._report,
        )
        self._watch.start()
        check_executors(spark)

    def release(self) -> None:
        """End the application. Only then does Spark delete what belongs to its executors, such as
        pods of Kubernetes: after that, the controller may kill the worker.
        """
        if self._spark is None or self._watch is None:
            return
        self._watch.end()
        # A cluster that does not answer must not delay the stop.
        stopping = threading.Thread(target=self._spark.stop, name="release", daemon=True)
        stopping.start()
        stopping.join(_RELEASE_WITHIN.total_seconds())

    def _report(self) -> None:
        if self._watch is None:
            what = "registered no driver"
        else:
            what = "ran no task" if has_running(self.executors) else "granted no executor"
        self._unavailable(
            ClusterUnavailable(
                f"{self._master} {what} within {self._patience.total_seconds():g} s",
                hint="Check the free cores and memory of the cluster, spark.executor.memory and"
                " spark.cores.max, and the logs of the executors. The job will retry.",
            )
        )
