"""What Spark knows of the jobs of one thread: read from its status stores, after they have ended.

The stores are what Spark's UI shows; they exist without it. Spark fills them in the background from
the events of tasks, so whoever reads them waits for the events so far. Only what is watched is read:
a job that nobody watches costs nothing.

Instants are seconds since 1970, by the driver's clock, in whole milliseconds. Durations of tasks
are those of Spark: the time of a task is that of its execution (CPU of the JVM's thread, waits for
shuffled blocks, and whatever else it waited for) and that of its overhead.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_EVENTS_DEADLINE = timedelta(seconds=10)
_MOST_TASKS = 10_000
"""Of a stage: more are not read."""
_PYTHON_SECONDS = ("time to execute Python code", "time to run Python workers")
"""Metrics of the steps of a query that run in Python workers; the first one that it has. Both
include the time in which a worker waits for rows.
"""
_PYTHON_BYTES = ("data sent to Python workers", "data returned from Python workers")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZES = {"B": 1, **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTPE", start=1)}}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SparkTask:
    """A task that has ended."""

    began: float
    ended: float
    run: float
    """Of its execution."""
    cpu: float
    """Of the JVM, in its execution."""
    shuffle_wait: float
    """For shuffled blocks."""
    shuffle_write: float
    """Part of its CPU or its waits."""
    garbage_collection: float
    """Of the whole JVM while it ran."""
    input_rows: int
    input_bytes: int
    output_bytes: int
    shuffle_bytes_read: int
    shuffle_bytes_written: int


@dataclass(frozen=True)
class SparkJob:
    """A job that has ended."""

    id: int
    query: int | None
    """The query that it belongs to."""
    began: float
    ended: float
    tasks: tuple[SparkTask, ...]


@dataclass(frozen=True)
class SparkQuery:
    """A query that has ended: an action on a DataFrame, once Spark has planned it."""

    id: int
    began: float
    ended: float
    python: float = 0.0
    """How long its Python workers ran, waits for rows included, as a sum over tasks and steps."""
    python_bytes: int = 0
    """Sent to Python workers and returned by them."""


@dataclass(frozen=True)
class SparkWork:
    """The jobs of one thread while it was watched, and their queries."""

    jobs: tuple[SparkJob, ...] = ()
    queries: tuple[SparkQuery, ...] = ()


class JobWatch:
    """Reads the figures of the jobs that a thread runs while it is watched."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context: Any = spark.sparkContext
        self._tag = ""
        self._has_warned = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the jobs of this thread, and those that Spark runs for them."""
        # A new name each time, so that the store is asked for these jobs alone.
        self._tag = f"watched-{uuid.uuid4().hex[:12]}"
        self._context.addJobTag(self._tag)
        try:
            yield
        finally:
            # The JVM may have ended. Then what ended it is the error to report.
            with suppress(Py4JError, OSError):
                self._context.removeJobTag(self._tag)

    def read(self) -> SparkWork:
        """Return the jobs that were watched last. Nothing, with a warning in the log, if Spark does
        not answer: figures are not worth a failed epoch.
        """
        try:
            return self._read()
        except (Py4JError, OSError, LookupError, TypeError, ValueError) as error:
            if not self._has_warned:
                log.warning("Spark has no figures of its jobs: %s", error)
            self._has_warned = True
            return SparkWork()

    def _read(self) -> SparkWork:
        context = self._context._jsc.sc()
        context.listenerBus().waitUntilEmpty(int(_EVENTS_DEADLINE.total_seconds() * 1000))
        store = context.statusStore()
        queries = self._spark._jsparkSession.sharedState().statusStore()
        java: Any = self._context._jvm
        mapper = java.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()

        def read(value: Any) -> Any:
            # One call for a whole tree, instead of one for each of its fields.
            return json.loads(mapper.writeValueAsString(value))

        jobs = []
        for number in sorted(context.statusTracker().getJobIdsForTag(self._tag)):
            found = store.jobWithAssociatedSql(number)
            job, query = read(found._1()), found._2()
            if "completionTime" in job:
                tasks = [
                    each for stage in job["stageIds"] for each in _attempts(store, read, stage)
                ]
                jobs.append(_job(job, query.get() if query.isDefined() else None, tasks))
        ids = sorted({each.query for each in jobs if each.query is not None})
        found_queries = (_query(queries, read, each) for each in ids)
        return SparkWork(tuple(jobs), tuple(each for each in found_queries if each is not None))


def _attempts(store: Any, read: Any, stage: int) -> Iterator[Mapping[str, Any]]:
    """Yield the tasks of all attempts of a stage; none if it was skipped."""
    attempt = 0
    while tasks := read(store.taskList(stage, attempt, _MOST_TASKS)):
        yield from tasks
        attempt += 1


def _job(job: Mapping[str, Any], query: int | None, tasks: Sequence[Mapping[str, Any]]) -> SparkJob:
    return SparkJob(
        id=job["jobId"],
        query=query,
        began=instant(job["submissionTime"]),
        ended=instant(job["completionTime"]),
        tasks=tuple(_task(each) for each in tasks if "taskMetrics" in each and "duration" in each),
    )


def _task(task: Mapping[str, Any]) -> SparkTask:
    began, metrics = instant(task["launchTime"]), task["taskMetrics"]
    read, written = metrics["shuffleReadMetrics"], metrics["shuffleWriteMetrics"]
    return SparkTask(
        began=began,
        ended=began + task["duration"] / 1000,
        run=metrics["executorRunTime"] / 1000,
        cpu=metrics["executorCpuTime"] / 1e9,
        shuffle_wait=read["fetchWaitTime"] / 1000,
        shuffle_write=written["writeTime"] / 1e9,
        garbage_collection=metrics["jvmGcTime"] / 1000,
        input_rows=metrics["inputMetrics"]["recordsRead"],
        input_bytes=metrics["inputMetrics"]["bytesRead"],
        output_bytes=metrics["outputMetrics"]["bytesWritten"],
        shuffle_bytes_read=read["localBytesRead"] + read["remoteBytesRead"],
        shuffle_bytes_written=written["bytesWritten"],
    )


def _query(store: Any, read: Any, number: int) -> SparkQuery | None:
    """Return a query; None if it has not ended, or Spark has dropped it."""
    found = store.execution(number)
    if found.isEmpty() or found.get().completionTime().isEmpty():
        return None
    query = found.get()
    names = {each["accumulatorId"]: each["name"] for each in read(query.metrics())}
    values: dict[str, list[str]] = {}
    for identity, text in read(store.executionMetrics(number)).items():
        values.setdefault(names.get(int(identity), ""), []).append(text)
    ran = next((values[each] for each in _PYTHON_SECONDS if each in values), [])
    sizes = [text for name in _PYTHON_BYTES for text in values.get(name, ())]
    return SparkQuery(
        id=number,
        began=query.submissionTime() / 1000,
        ended=query.completionTime().get().getTime() / 1000,
        python=sum(map(duration, ran)),
        python_bytes=sum(map(size, sizes)),
    )


def instant(text: str) -> float:
    """Parse an instant as Spark writes it: `2026-11-19T17:41:36.375GMT`."""
    return datetime.fromisoformat(text.replace("GMT", "+00:00")).timestamp()


def duration(text: str) -> float:
    """Return the seconds of a metric as Spark shows it: `271 ms (126 ms, 145 ms)`, with a heading
    if there were several tasks.
    """
    number, unit = _first_quantity(text)
    return number * _UNITS[unit]


def size(text: str) -> int:
    """Return the bytes of a metric as Spark shows it: `2.0 KiB (1016.0 B, 1080.0 B)`."""
    number, unit = _first_quantity(text)
    return int(number * _SIZES[unit])


def _first_quantity(text: str) -> tuple[float, str]:
    found = re.match(r"([\d.,]+) ([A-Za-z]+)", text.rpartition("\n")[2])
    if found is None:
        raise ValueError(f"not a quantity: {text}")
    return float(found[1].replace(",", "")), found[2]
