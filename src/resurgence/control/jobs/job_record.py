"""A job on record: what its user wants, and what it is. Two records; each has one writer.

Requests (stop, start, restart, rescale, roll back, delete) change what is wanted: pure functions from one
`DesiredConfig` to the next, stored before they are answered. The supervisor alone writes the status,
and converges to what is wanted, from any state.
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
    """The worker is ended at once."""


class Wanted(StrEnum):
    """What a job should come to."""

    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class JobBeingDeleted(UserError):
    """The job is on its way out: nothing else can be asked of it."""

    code = "job.being_deleted"


@dataclass(frozen=True)
class PipelineRecord:
    """The pipeline as its user wrote it, and where its state lies."""

    sql: str
    state_url: str
    functions: str | None = None
    """The text of the Python module with the user's functions."""
    settings: dict[str, str] = field(default_factory=dict)
    """Dotted keys; what is not there has its default."""


@dataclass(frozen=True)
class DesiredConfig:
    """What the user wants; the supervisor converges to it."""

    parallelism: int
    wanted: Wanted = Wanted.RUNNING
    stop_mode: StopMode = StopMode.CHECKPOINT
    run: int = 1
    """Counts the starts and restarts that were asked for. A status with a lower one is behind."""
    force: bool = False
    """The last restart does not wait for a checkpoint."""
    reset_run: int = 0
    """The last run that was to begin from an earlier checkpoint, or without state."""
    reset_epoch: Epoch = NO_EPOCH
    """That checkpoint. 0: without state."""
    delete_state: bool = False

    @property
    def stop(self) -> StopMode | None:
        """How to stop, if the job is not to run."""
        return None if self.wanted is Wanted.RUNNING else self.stop_mode


@dataclass(frozen=True)
class WorkerRecord:
    """A worker of a job, as far as another controller must know it to take it over."""

    worker: WorkerId
    generation: Generation
    pid: int
    token_digest: str


@dataclass(frozen=True)
class JobStatus:
    """What a job is: written by its supervisor alone."""

    state: StateName = StateName.CREATED
    cause: str = ""
    run: int = 0
    """The run that this status is of."""
    reset_run: int = 0
    """The last run whose reset or rollback has been done: it happens once."""
    parallelism: int = 0
    generation: Generation = NO_GENERATION
    identity: str = ""
    worker: WorkerRecord | None = None
    failure: dict[str, JsonValue] | None = None
    """Why the job failed: the first fault, how often it came, what was tried, what to do."""
    history: dict[str, JsonValue] | None = None
    """What the restart policy remembers."""
    changed_at: datetime | None = None


@dataclass(frozen=True)
class JobRecord:
    """All that is stored of a job."""

    name: JobName
    pipeline: PipelineRecord
    desired: DesiredConfig
    status: JobStatus
    created_at: datetime


def stopped(desired: DesiredConfig, mode: StopMode) -> DesiredConfig:
    """Stop it. Once it is forced, it stays so."""
    _require_kept(desired)
    if desired.stop is StopMode.FORCE:
        mode = StopMode.FORCE
    return replace(desired, wanted=Wanted.STOPPED, stop_mode=mode)


def started(desired: DesiredConfig, state: StateName) -> DesiredConfig:
    """Let it run; nothing changes if it does."""
    _require_kept(desired)
    if desired.wanted is Wanted.RUNNING and state not in (*TERMINAL, StateName.FAILING):
        return desired
    return replace(desired, wanted=Wanted.RUNNING, run=desired.run + 1, force=False)


def restarted(desired: DesiredConfig, *, force: bool, without_state: bool) -> DesiredConfig:
    """A new run, from whatever state. `without_state` is for this run only."""
    _require_kept(desired)
    run = desired.run + 1
    desired = replace(desired, wanted=Wanted.RUNNING, run=run, force=force)
    return replace(desired, reset_run=run, reset_epoch=NO_EPOCH) if without_state else desired


def rolled_back(desired: DesiredConfig, to_epoch: Epoch) -> DesiredConfig:
    """A new run from an earlier checkpoint; a job that is stopped is rolled back and stays so. What
    a running worker is at is undone anyway, so it is not waited for.
    """
    _require_kept(desired)
    run = desired.run + 1
    return replace(desired, run=run, force=True, reset_run=run, reset_epoch=to_epoch)


def rescaled(desired: DesiredConfig, parallelism: int) -> DesiredConfig:
    """Another number of subtasks; a job that is stopped stays so."""
    _require_kept(desired)
    return replace(desired, parallelism=parallelism)


def deleted(desired: DesiredConfig, *, with_state: bool) -> DesiredConfig:
    """Stop it at once and forget it; its state stays unless that is to go, too."""
    return replace(
        desired,
        wanted=Wanted.DELETED,
        stop_mode=StopMode.FORCE,
        delete_state=desired.delete_state or with_state,
    )


def _require_kept(desired: DesiredConfig) -> None:
    if desired.wanted is Wanted.DELETED:
        raise JobBeingDeleted(
            "the job is being deleted", hint="Wait until it is deleted, then create it again."
        )


def should_start(desired: DesiredConfig, status: JobStatus) -> bool:
    """Whether a job that no one supervises needs a supervisor.

    One that is in the middle of something always does, if only to be stopped. One that failed or
    finished stays so until its user asks again; one that was stopped by the end of its controller
    goes on; one that is stopped and to be rolled back is rolled back and stopped again.
    """
    if status.state not in TERMINAL:
        return True
    if desired.wanted is Wanted.STOPPED:
        # Only to be rolled back, once.
        return desired.reset_run > max(status.reset_run, status.run)
    if desired.wanted is Wanted.DELETED:
        return False
    return status.run < desired.run or status.state is StateName.STOPPED
