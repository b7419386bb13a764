"""The executors of a cluster: a list of them, what changed in it, and a check that they can run our
tasks.

Spark itself re-runs the tasks of a lost executor. Nothing here decides about recovery.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_DRIVER = "driver"
_RELEASED = ("Executor killed by driver", "Executor decommission")
"""Why Spark removed an executor that it did not need, with dynamic allocation."""
_LONGEST_REASON = 300


class ExecutorState(StrEnum):
    """Whether an executor takes tasks, was released on request, or was lost."""

    RUNNING = "running"
    RELEASED = "released"
    LOST = "lost"


class Executor(BaseModel):
    """An executor of a job, as Spark's driver knows it."""

    model_config = ConfigDict(frozen=True)

    id: str
    host: str
    cores: int
    state: ExecutorState
    active_tasks: int
    completed_tasks: int
    failed_tasks: int
    added_at: datetime
    removed_at: datetime | None = None
    reason: str = ""
    """Why it was removed."""


class ExecutorReader:
    """Reads the executors of a session from the driver's status store. That takes two calls of the
    JVM, however many executors there are.
    """

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        api = context._jvm.org.apache.spark.status.api.v1  # type: ignore[union-attr]
        self._store = context._jsc.sc().statusStore()
        self._mapper = api.JacksonMessageWriter().mapper()

    def read(self) -> tuple[Executor, ...]:
        """Return the executors, oldest first, with the newest hundred removed ones."""
        return read_executors(self._mapper.writeValueAsString(self._store.executorList(False)))


def read_executors(text: str) -> tuple[Executor, ...]:
    """Parse Spark's list of executors, in the JSON of its REST API."""
    made = [_executor(each) for each in json.loads(text) if each["id"] != _DRIVER]
    return tuple(sorted(made, key=lambda each: (each.added_at, each.id)))


def _executor(facts: dict[str, Any]) -> Executor:
    reason = str(facts.get("removeReason") or "").strip().split("\n")[0][:_LONGEST_REASON]
    state = ExecutorState.RUNNING
    if not facts["isActive"]:
        is_released = reason.startswith(_RELEASED)
        state = ExecutorState.RELEASED if is_released else ExecutorState.LOST
    removed_at = facts.get("removeTime")
    return Executor(
        id=facts["id"],
        host=facts["hostPort"].rpartition(":")[0] or facts["hostPort"],
        cores=facts["totalCores"],
        state=state,
        active_tasks=facts["activeTasks"] if facts["isActive"] else 0,
        completed_tasks=facts["completedTasks"],
        failed_tasks=facts["failedTasks"],
        added_at=_instant(facts["addTime"]),
        removed_at=_instant(removed_at) if removed_at else None,
        reason=reason,
    )


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("GMT", "+00:00"))


def added(before: Iterable[Executor], now: Iterable[Executor]) -> tuple[Executor, ...]:
    """Return the executors that are new."""
    known = {each.id for each in before}
    return tuple(each for each in now if each.id not in known)


def lost(before: Iterable[Executor], now: Iterable[Executor]) -> tuple[Executor, ...]:
    """Return the executors that were lost since `before`."""
    known = {each.id for each in before if each.state is ExecutorState.LOST}
    return tuple(each for each in now if each.state is ExecutorState.LOST and each.id not in known)


def has_running(executors: Iterable[Executor]) -> bool:
    return any(each.state is ExecutorState.RUNNING for each in executors)


def check_executors(spark: SparkSession) -> None:
    """Run one task that imports what tasks need. Raises what Spark raises if it fails. Waits until
    the cluster grants an executor: the caller has a deadline.
    """
    spark.range(0, 1, 1, 1).mapInArrow(_import_task_modules, "id long").collect()


def _import_task_modules(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import resurgence.connectors.staging
    import resurgence.engine.tables.state_writer  # noqa: F401

    yield from batches
