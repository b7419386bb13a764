"""Failures and incidents as they are reported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from resurgence.control.detection.failure import (
    Failure,
    FailureKind,
    exit_failure,
    failure_from,
    stall_failure,
)
from resurgence.control.detection.running_job_model import (
    StalledProgress,
    WorkerState,
    WorkerStatus,
)
from resurgence.control.telemetry.incident import Incident
from resurgence.errors import (
    DamagedState,
    ErrorDomain,
    ResurgenceError,
    RetryHint,
    SqlError,
    StorageError,
)
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId, WorkerId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.decisions import Fallback, RecordedEpoch
from resurgence.state.records import InputRange

START = datetime(2030, 1, 1, tzinfo=UTC)
FAILURE = Failure(
    FailureKind.TASK_FAILED, "out of memory", ErrorDomain.INTERNAL, RetryHint.WITH_BACKOFF
)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_the_phases_of_an_incident_sum_to_its_duration() -> None:
    incident = Incident(START, FAILURE)
    incident.phase_done("detect", after(0.5))
    incident.phase_done("plan", after(2))
    incident.phase_done("resume", after(5.25))
    assert incident.phases == {"detect": 0.5, "plan": 1.5, "resume": 3.25}


def test_the_durations_of_a_repeated_phase_are_summed() -> None:
    incident = Incident(START, FAILURE)
    for second in (1, 2, 3, 4):
        incident.phase_done(["plan", "schedule"][second % 2], after(second))
    assert incident.phases == {"schedule": 2.0, "plan": 2.0}


def test_the_facts_of_an_incident_are_plain_json() -> None:
    incident = Incident(
        START,
        FAILURE,
        restored_epoch=Epoch(3),
        replayed_rows=7,
        fallbacks=(Fallback(epoch=Epoch(4), reasons=("is missing",)),),
        resumed_at=after(1.5),
    )
    assert incident.facts() == {
        "kind": "task_failed",
        "reason": "out of memory",
        "domain": "internal",
        "hint": "",
        "operator_id": None,
        "epoch": 0,
        "generations": [],
        "detected_at": "2030-01-01T00:00:00.000+00:00",
        "restored_epoch": 3,
        "resumed_at": "2030-01-01T00:00:01.500+00:00",
        "replayed_rows": 7,
        "attempts": 1,
        "fallbacks": [{"epoch": 4, "reasons": ["is missing"]}],
        "phases": {},
    }


@pytest.mark.parametrize(
    ("status", "said"),
    [(-9, "was killed by signal 9"), (1, "exited with status 1"), (0, "exited with status 0")],
)
def test_an_exit_describes_the_exit_status(status: int, said: str) -> None:
    worker = WorkerStatus(
        WorkerId("w"), Generation(1), WorkerState.EXITED, START, 17, "execute", exit_status=status
    )
    failure = exit_failure(worker, Epoch(3))
    assert failure.reason == f"the worker (pid 17) {said}"
    assert (failure.epoch, failure.phase) == (3, "execute")


def test_a_stall_says_where_and_for_how_long() -> None:
    stalled = StalledProgress(
        WorkerId("w"), Epoch(4), "execute", OperatorId("window-1"), timedelta(seconds=600.4)
    )
    failure = stall_failure(stalled)
    assert failure.reason == "epoch 4 made no progress in 'execute' for 600 s"
    assert (failure.operator, failure.epoch) == ("window-1", 4)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StorageError("away", hint="look"), {"code": "storage", "hint": "look"}),
        (DamagedState("bad", path="a/b"), {"damaged_path": "a/b"}),
        (SqlError("bad", line=3, column=7), {"line": 3, "column": 7}),
    ],
)
def test_an_error_becomes_a_failure_with_all_its_fields(
    error: ResurgenceError, expected: dict[str, object]
) -> None:
    failure = failure_from(error)
    assert (failure.reason, failure.domain, failure.retry_hint) == (
        error.message,
        error.domain,
        error.retry_hint,
    )
    assert {name: getattr(failure, name) for name in expected} == expected


def test_replayed_rows_are_those_of_all_epochs_begun_after_the_restored_one() -> None:
    incident = Incident(START, FAILURE, started_rows={Epoch(3): 30, Epoch(4): 40, Epoch(5): 50})
    sealed = RecordedEpoch(
        inputs={
            OperatorId("left"): InputRange(start={}, end={}, rows=7),
            OperatorId("right"): InputRange(start={}, end={}, rows=4),
        },
        sealed=True,
        committed=False,
        attempt=1,
    )
    incident.count_replayed(
        LoadPlan(
            job=JobIdentity("a1"),
            generation=Generation(2),
            parallelism=1,
            epoch=Epoch(3),
            recorded={Epoch(4): sealed},
        )
    )
    assert incident.replayed_rows == 11 + 50
