"""Failures, as the control plane represents them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from resurgence.control.detection.running_job_model import StalledProgress, WorkerStatus
from resurgence.errors import (
    DamagedState,
    ErrorDomain,
    ResurgenceError,
    RetryHint,
    SparkKilled,
    SqlError,
)
from resurgence.exit_status import killed_from_outside
from resurgence.ids import NO_EPOCH, Epoch, OperatorId
from resurgence.worker.messages import TaskFailedEvent


class FailureKind(StrEnum):
    """What failed."""

    WORKER_EXITED = "worker_exited"
    WORKER_TIMEDOUT = "worker_timedout"
    TASK_FAILED = "task_failed"
    PROGRESS_STALLED = "progress_stalled"
    START_FAILED = "start_failed"
    CONTROL_FAILED = "control_failed"
    """A step of the controller failed, for example because of storage."""
    CONTROLLER_LOST = "controller_lost"
    """An earlier controller ended and left the job in a non-terminal state."""


@dataclass(frozen=True)
class Failure:
    """One failure: its kind, reason and error domain, and whether to retry."""

    kind: FailureKind
    reason: str
    domain: ErrorDomain
    retry_hint: RetryHint
    epoch: Epoch = NO_EPOCH
    hint: str = ""
    code: str = ""
    operator: OperatorId | None = None
    phase: str = ""
    subtask: int | None = None
    damaged_path: str | None = None
    line: int | None = None
    column: int | None = None
    traceback: str = ""
    """The traceback of the user's function, if one raised."""
    position: str = ""
    """The position in the input."""
    worker_usable: bool = False
    """The worker that reported it can take another generation."""
    killed: bool = False
    """The worker or its JVM was killed from outside, which is no evidence about the next one."""

    @property
    def fingerprint(self) -> str:
        """A digest that is equal for failures which differ only in numbers and unique names."""
        plain = re.sub(r"[0-9a-f]{8,}|\d+", "#", self.reason)
        text = f"{self.kind}|{self.code}|{self.operator}|{self.phase}|{plain}|{self.epoch}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def task_failure(event: TaskFailedEvent) -> Failure:
    """Return the failure that a worker reported."""
    return Failure(
        kind=FailureKind.TASK_FAILED,
        reason=event.error,
        domain=event.domain,
        retry_hint=event.retry_hint,
        epoch=event.epoch,
        hint=event.hint,
        code=event.code,
        operator=event.operator,
        subtask=event.subtask,
        damaged_path=event.damaged_path,
        line=event.line,
        column=event.column,
        traceback=event.traceback,
        position=event.position,
        worker_usable=event.worker_usable,
        killed=event.code == SparkKilled.code,
    )


def exit_failure(status: WorkerStatus, epoch: Epoch) -> Failure:
    """Return the failure for a worker process that exited or was killed."""
    code = status.exit_status
    if code is None:
        how = "exited with an unknown status"
    else:
        how = f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
    failure = _worker_failure(
        FailureKind.WORKER_EXITED, f"the worker (pid {status.pid}) {how}", status, epoch
    )
    return replace(failure, killed=killed_from_outside(code))


def timeout_failure(status: WorkerStatus, epoch: Epoch) -> Failure:
    """Return the failure for a worker whose heartbeats stopped."""
    reason = f"no heartbeat from the worker (pid {status.pid}) within the timeout"
    return _worker_failure(FailureKind.WORKER_TIMEDOUT, reason, status, epoch)


_WORKER_HINTS = {
    FailureKind.WORKER_EXITED: "Check the end of the worker's log. If the kernel's log shows an "
    "out-of-memory kill, lower spark.driver.memory or pipeline.epoch_rows.",
    FailureKind.WORKER_TIMEDOUT: "Check the load of the machine, or raise "
    "pipeline.heartbeat_timeout.",
}


def _worker_failure(kind: FailureKind, reason: str, status: WorkerStatus, epoch: Epoch) -> Failure:
    return Failure(
        kind=kind,
        reason=reason,
        domain=ErrorDomain.INTERNAL,
        retry_hint=RetryHint.WITH_BACKOFF,
        epoch=epoch,
        operator=status.operator,
        phase=status.phase,
        hint=_WORKER_HINTS[kind],
    )


def stall_failure(stalled: StalledProgress) -> Failure:
    """Return the failure for an epoch without progress while heartbeats continue."""
    seconds = stalled.stalled_for.total_seconds()
    reason = f"epoch {stalled.epoch} made no progress in '{stalled.phase}' for {seconds:.0f} s"
    return Failure(
        FailureKind.PROGRESS_STALLED,
        reason,
        ErrorDomain.INTERNAL,
        RetryHint.WITH_BACKOFF,
        stalled.epoch,
        operator=stalled.operator,
        phase=stalled.phase,
        hint="Check the worker's log. If epochs take that long, raise pipeline.epoch_timeout or "
        "lower pipeline.epoch_rows.",
    )


def failure_from(error: ResurgenceError, kind: FailureKind = FailureKind.CONTROL_FAILED) -> Failure:
    """Return the failure for an error of the control plane."""
    return Failure(
        kind=kind,
        reason=error.message,
        domain=error.domain,
        retry_hint=error.retry_hint,
        hint=error.hint,
        code=error.code,
        damaged_path=error.path if isinstance(error, DamagedState) else None,
        line=error.line if isinstance(error, SqlError) else None,
        column=error.column if isinstance(error, SqlError) else None,
    )


def controller_failure(state: str) -> Failure:
    """Return the failure for a job that a lost controller left in a non-terminal state."""
    return Failure(
        FailureKind.CONTROLLER_LOST,
        f"the controller ended while the job was {state}",
        ErrorDomain.INTERNAL,
        RetryHint.WITH_BACKOFF,
    )
