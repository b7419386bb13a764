"""The failure detector: the known facts about a running job, and the queries that are evaluated on
every progress tick.

Pure. `observe` and `note_exit` record facts; the queries are methods over these and `now`. Only
workers in the running state count: one that starts or stops has a deadline of its own, set by the
state that waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from resurgence.ids import NO_EPOCH, Epoch, Generation, OperatorId, WorkerId
from resurgence.worker.messages import (
    EpochCommitted,
    EpochSealed,
    EpochStarted,
    FromWorker,
    Heartbeat,
    InputFinished,
    StateRestored,
    TaskFailedEvent,
    WorkerConnected,
    WorkerStopped,
)

IDLE = "idle"
"""The phase of a worker that is waiting for input."""


class WorkerState(StrEnum):
    """The lifecycle state of a worker."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    EXITED = "exited"


@dataclass(frozen=True)
class WorkerStatus:
    """The known facts about one worker."""

    worker: WorkerId
    generation: Generation
    state: WorkerState
    last_heard_at: datetime
    pid: int | None = None
    phase: str = "start"
    phase_began_at: datetime | None = None
    operator: OperatorId | None = None
    exit_status: int | None = None


@dataclass(frozen=True)
class StalledProgress:
    """An epoch that makes no progress while heartbeats continue."""

    worker: WorkerId
    epoch: Epoch
    phase: str
    operator: OperatorId | None
    stalled_for: timedelta


class RunningJobModel:
    """The workers and epochs of one job, as the controller knows them."""

    def __init__(self, *, heartbeat_timeout: timedelta, epoch_timeout: timedelta) -> None:
        self._heartbeat_timeout = heartbeat_timeout
        self._epoch_timeout = epoch_timeout
        self._workers: dict[WorkerId, WorkerStatus] = {}
        self._failure: TaskFailedEvent | None = None
        self.generation = Generation(0)
        self.sealed_epoch = NO_EPOCH
        self.committed_epoch = NO_EPOCH
        self.started_rows: dict[Epoch, int] = {}
        """Rows of the epochs that were started and are not sealed: those that a failure now would
        replay.
        """
        self.restored: StateRestored | None = None
        self.finished = False

    def retime(self, *, heartbeat_timeout: timedelta, epoch_timeout: timedelta) -> None:
        """Replace the timeouts."""
        self._heartbeat_timeout, self._epoch_timeout = heartbeat_timeout, epoch_timeout

    # ---------------------------------------------------------------- facts

    def expect(self, worker: WorkerId, generation: Generation, pid: int, now: datetime) -> None:
        """Note the start of a worker of a new generation. Discards all facts about older ones."""
        self.generation = generation
        self._workers = {worker: WorkerStatus(worker, generation, WorkerState.STARTING, now, pid)}
        self._failure = None
        self.started_rows = {}
        self.restored = None
        self.finished = False

    def observe(self, message: FromWorker, now: datetime) -> bool:
        """Record a message of a worker. Return False, and drop the message, if the worker is
        unknown or of another generation.
        """
        status = self._workers.get(message.worker)
        if status is None or message.generation != self.generation:
            return False
        status = replace(status, last_heard_at=now)
        match message:
            case WorkerConnected():
                status = replace(status, pid=message.pid)
            case Heartbeat():
                began_at = now - timedelta(seconds=message.phase_seconds)
                status = replace(
                    status, phase=message.phase, phase_began_at=began_at, operator=message.operator
                )
            case StateRestored():
                status = replace(status, state=WorkerState.RUNNING, phase=IDLE, phase_began_at=now)
                self.restored = message
                self.sealed_epoch = self.committed_epoch = message.epoch
            case EpochStarted():
                self.started_rows[message.epoch] = message.rows
            case EpochSealed():
                self.sealed_epoch = message.epoch
                self.started_rows.pop(message.epoch, None)
            case EpochCommitted():
                self.committed_epoch = message.epoch
            case TaskFailedEvent():
                self._failure = self._failure or message
            case InputFinished():
                self.finished = True
                status = replace(status, state=WorkerState.STOPPED)
            case WorkerStopped():
                status = replace(status, state=WorkerState.STOPPED)
        self._workers[message.worker] = status
        return True

    def note_exit(self, worker: WorkerId, exit_status: int | None, now: datetime) -> None:
        """Record the exit of a worker process."""
        status = self._workers.get(worker)
        if status is not None and status.state is not WorkerState.EXITED:
            state = (
                WorkerState.STOPPED if status.state is WorkerState.STOPPED else WorkerState.EXITED
            )
            self._workers[worker] = replace(
                status, state=state, exit_status=exit_status, last_heard_at=now
            )

    # ---------------------------------------------------------------- queries

    @property
    def workers(self) -> tuple[WorkerStatus, ...]:
        return tuple(self._workers.values())

    def worker_timedout(self, now: datetime) -> WorkerStatus | None:
        """Return a running worker that has been silent for the heartbeat timeout or longer."""
        for status in self._workers.values():
            if (
                status.state is WorkerState.RUNNING
                and now - status.last_heard_at >= self._heartbeat_timeout
            ):
                return status
        return None

    def worker_exited(self) -> WorkerStatus | None:
        """Return a worker whose process exited without an order."""
        return next(
            (each for each in self._workers.values() if each.state is WorkerState.EXITED), None
        )

    def task_failed(self) -> TaskFailedEvent | None:
        """Return the first task failure that was reported."""
        return self._failure

    def progress_stalled(self, now: datetime) -> StalledProgress | None:
        """Return a running worker that has been in one phase of an epoch for the epoch timeout or
        longer.
        """
        for status in self._workers.values():
            if (
                status.state is not WorkerState.RUNNING
                or status.phase == IDLE
                or status.phase_began_at is None
            ):
                continue
            stalled_for = now - status.phase_began_at
            if stalled_for >= self._epoch_timeout:
                epoch = Epoch(self.sealed_epoch + (status.phase != "commit"))
                return StalledProgress(
                    status.worker, epoch, status.phase, status.operator, stalled_for
                )
        return None

    def due_in(self, now: datetime) -> timedelta:
        """Return how long no failure can be found unless something is observed: the time until a
        running worker has been silent, or in one phase, for too long.
        """
        due = self._heartbeat_timeout
        for status in self._workers.values():
            if status.state is not WorkerState.RUNNING:
                continue
            due = min(due, status.last_heard_at + self._heartbeat_timeout - now)
            if status.phase != IDLE and status.phase_began_at is not None:
                due = min(due, status.phase_began_at + self._epoch_timeout - now)
        return max(due, timedelta(0))

    def all_stopped(self) -> bool:
        """Return whether every worker has reported that it stopped."""
        return all(each.state is WorkerState.STOPPED for each in self._workers.values())
