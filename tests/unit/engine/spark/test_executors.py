"""The executors of a cluster, from the JSON of Spark's status store."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from resurgence.engine.spark.executors import (
    Executor,
    ExecutorState,
    added,
    has_running,
    lost,
    read_executors,
)


def facts(name: str, **changed: Any) -> dict[str, Any]:
    """An executor as Spark 4 describes it, without the fields that are not read."""
    return {
        "id": name,
        "hostPort": "10.0.0.7:40123",
        "isActive": True,
        "totalCores": 4,
        "activeTasks": 2,
        "failedTasks": 1,
        "completedTasks": 90,
        "addTime": "2026-11-17T20:00:00.250GMT",
        **changed,
    }


def removed(name: str, reason: str) -> dict[str, Any]:
    return facts(name, isActive=False, removeTime="2026-11-17T20:01:00.000GMT", removeReason=reason)


def read(*found: dict[str, Any]) -> tuple[Executor, ...]:
    return read_executors(json.dumps(found))


def test_an_executor_has_host_cores_tasks_and_failures() -> None:
    (executor,) = read(facts("3"))
    assert executor == Executor(
        id="3",
        host="10.0.0.7",
        cores=4,
        state=ExecutorState.RUNNING,
        active_tasks=2,
        completed_tasks=90,
        failed_tasks=1,
        added_at=datetime(2026, 11, 17, 20, 0, 0, 250_000, tzinfo=UTC),
    )


def test_the_driver_is_no_executor() -> None:
    assert read(facts("driver")) == ()


def test_a_removed_executor_was_lost_unless_the_driver_released_it() -> None:
    reasons = {
        "Command exited with code 137": ExecutorState.LOST,
        "worker lost: 10.0.0.7:7078 got disassociated\nmore": ExecutorState.LOST,
        "": ExecutorState.LOST,
        "Executor killed by driver.": ExecutorState.RELEASED,
        "Executor decommission: spark scale down": ExecutorState.RELEASED,
    }
    for reason, state in reasons.items():
        (executor,) = read(removed("1", reason))
        assert executor.state is state
        assert executor.reason == reason.split("\n")[0]
        assert executor.active_tasks == 0
        assert executor.removed_at == datetime(2026, 11, 17, 20, 1, tzinfo=UTC)


def test_executors_are_added_and_lost_once() -> None:
    one, two = facts("1"), facts("2", addTime="2026-11-17T20:00:05.000GMT")
    before = read(two, one)
    assert [each.id for each in before] == ["1", "2"]
    assert added((), before) == before
    after = read(removed("1", "Command exited with code 137"), two)
    assert [each.id for each in lost(before, after)] == ["1"]
    assert added(before, after) == ()
    assert lost(after, after) == ()
    assert has_running(after)
    assert not has_running(after[:1])
