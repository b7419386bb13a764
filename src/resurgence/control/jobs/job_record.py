"""The records of a job: its desired state and its status. Each has one writer.

Requests (stop, start, restart, rescale, roll back, delete) change the desired state: pure functions
from one `DesiredConfig` to the next, stored before the request is answered. Only the supervisor
writes the status. It converges to the desired state from any state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from pydantic import JsonValue

from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.errors import UserError
from resurgence.ids import NO_EPOCH, NO_GENERATION, Epoch, Generation, JobName, WorkerId


class StopMode(StrEnum):
    """How a job is stopped."""

    CHECKPOINT = "checkpoint"
    """The worker finishes its epoch, which is sealed and committed."""
    FORCE = "force"
    """The worker is killed at once."""


class Wanted(StrEnum):
    """The desired state of a job."""

    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class JobBeingDeleted(UserError):
    """The job is being deleted and accepts no other request."""

    code = "job.being_deleted"


@dataclass(frozen=True)
class PipelineRecord:
    """The pipeline as its user wrote it, and where its state is stored."""

    sql: str
    state_url: str
    functions: str | None = None
    """The source of the Python module with the user's functions."""
    settings: dict[str, str] = field(default_factory=dict)
    """By dotted key; missing ones have their defaults."""


@dataclass(frozen=True)
class DesiredConfig:
    """What the user requested; the supervisor converges to it."""

    parallelism: int
    wanted: Wanted = Wanted.RUNNING
    stop_mode: StopMode = StopMode.CHECKPOINT
    run: int = 1
    """Counts the requested starts and restarts. A status with a lower run is behind."""
    force: bool = False
    """The last restart does not wait for a checkpoint."""
    reset_run: int = 0
    """The last run that was requested to begin from an earlier checkpoint, or without state."""
    reset_epoch: Epoch = NO_EPOCH
    """That checkpoint. 0: without state."""
    delete_state: bool = False

    @property
    def stop(self) -> StopMode | None:
        """How to stop; None if the job should run."""
        return None if self.wanted is Wanted.RUNNING else self.stop_mode


@dataclass(frozen=True)
class WorkerRecord:
    """What another controller needs to adopt a worker of a job."""

    worker: WorkerId
    generation: Generation
    pid: int
    token_digest: str


@dataclass(frozen=True)
class JobStatus:
    """The status of a job. Only its supervisor writes it."""

    state: StateName = StateName.CREATED
    cause: str = ""
    run: int = 0
    """The run that this status belongs to."""
    reset_run: int = 0
    """The last run whose reset or rollback is done; each is done once."""
    parallelism: int = 0
    generation: Generation = NO_GENERATION
    identity: str = ""
    worker: WorkerRecord | None = None
    failure: dict[str, JsonValue] | None = None
    """The diagnosis of a failed job: the first fault, its count, what was tried, what to do."""
    history: dict[str, JsonValue] | None = None
    """The `RestartHistory` of the restart policy."""
    changed_at: datetime | None = None


@dataclass(frozen=True)
class JobRecord:
    """Everything that is stored about a job."""

    name: JobName
    pipeline: PipelineRecord
    desired: DesiredConfig
    status: JobStatus
    created_at: datetime
    revision: int = 0
    """Counts the changes of pipeline and desired state."""


def stopped(desired: DesiredConfig, mode: StopMode) -> DesiredConfig:
    """Request a stop. A forced stop stays forced."""
    _require_not_deleted(desired)
    if desired.stop is StopMode.FORCE:
        mode = StopMode.FORCE
    return replace(desired, wanted=Wanted.STOPPED, stop_mode=mode)


def started(desired: DesiredConfig, state: StateName) -> DesiredConfig:
    """Request a start. No change if the job runs already."""
    _require_not_deleted(desired)
    if desired.wanted is Wanted.RUNNING and state not in (*TERMINAL, StateName.FAILING):
        return desired
    return replace(desired, wanted=Wanted.RUNNING, run=desired.run + 1, force=False)


def restarted(desired: DesiredConfig, *, force: bool, without_state: bool) -> DesiredConfig:
    """Request a new run, from any state. `without_state` applies to this run only."""
    _require_not_deleted(desired)
    run = desired.run + 1
    desired = replace(desired, wanted=Wanted.RUNNING, run=run, force=force)
    return replace(desired, reset_run=run, reset_epoch=NO_EPOCH) if without_state else desired


def rolled_back(desired: DesiredConfig, to_epoch: Epoch) -> DesiredConfig:
    """Request a new run from an earlier checkpoint. A stopped job is rolled back and stays stopped.
    The epoch of a running worker is undone anyway, so the restart is forced.
    """
    _require_not_deleted(desired)
    run = desired.run + 1
    return replace(desired, run=run, force=True, reset_run=run, reset_epoch=to_epoch)


def rescaled(desired: DesiredConfig, parallelism: int) -> DesiredConfig:
    """Request another number of subtasks. A stopped job stays stopped."""
    _require_not_deleted(desired)
    return replace(desired, parallelism=parallelism)


def deleted(desired: DesiredConfig, *, with_state: bool) -> DesiredConfig:
    """Request a forced stop and the deletion of the job, and of its state if `with_state`."""
    return replace(
        desired,
        wanted=Wanted.DELETED,
        stop_mode=StopMode.FORCE,
        delete_state=desired.delete_state or with_state,
    )


def _require_not_deleted(desired: DesiredConfig) -> None:
    if desired.wanted is Wanted.DELETED:
        raise JobBeingDeleted(
            "the job is being deleted", hint="Wait until it is deleted, then create it again."
        )


def should_start(desired: DesiredConfig, status: JobStatus) -> bool:
    """Return whether a job without a supervisor needs one.

    A job in a non-terminal state always does, if only to be stopped. A failed or finished job needs
    one only after a new request. A job that was stopped by the shutdown of its controller resumes.
    A stopped job with a requested rollback is rolled back and stopped again.
    """
    if status.state not in TERMINAL:
        return True
    if desired.wanted is Wanted.STOPPED:
        # Only for a rollback, once.
        return desired.reset_run > max(status.reset_run, status.run)
    if desired.wanted is Wanted.DELETED:
        return False
    return status.run < desired.run or status.state is StateName.STOPPED
