"""What a job's states share: its definition, what it wants to be, what is known of it, and the
means to act.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from resurgence.clock import Clock
from resurgence.config import Settings
from resurgence.control.channel import ControlChannel
from resurgence.control.events import EventLog
from resurgence.control.failure import (
    Failure,
    exit_failure,
    stall_failure,
    task_failure,
    timeout_failure,
)
from resurgence.control.incident import Incident
from resurgence.control.restart_policy import RestartHistory
from resurgence.control.running_job_model import RunningJobModel
from resurgence.control.scheduler import ProcessScheduler, WorkerOrder, WorkerProcess
from resurgence.graph.model import Graph
from resurgence.ids import JobName, WorkerId
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import GenerationRecord
from resurgence.worker.messages import (
    CheckpointDamaged,
    EpochCommitted,
    EpochSealed,
    FromWorker,
    StartExecution,
    StateRestored,
)

PROGRESS_TICK = timedelta(milliseconds=200)


class StopMode(StrEnum):
    """How a job is stopped: from the most careful to the most brutal."""

    CHECKPOINT = "checkpoint"
    GRACEFUL = "graceful"
    IMMEDIATE = "immediate"
    FORCE = "force"


@dataclass(frozen=True)
class JobDefinition:
    """The pipeline as its user wrote it, and where its state lies."""

    name: JobName
    sql: str
    state_url: str
    settings: Settings
    compile: Callable[[str], Graph]
    functions_file: Path | None = None
    log_file: Path = Path("worker.log")


@dataclass
class DesiredConfig:
    """What the user wants; the supervisor converges to it."""

    parallelism: int
    stop: StopMode | None = None
    restart: bool = False


@dataclass
class JobContext:
    """One job's supervisor and its states work on this; nobody else does."""

    definition: JobDefinition
    desired: DesiredConfig
    backend: StateBackend
    scheduler: ProcessScheduler
    events: EventLog
    clock: Clock
    model: RunningJobModel
    jitter: Callable[[], float] = random.random
    graph: Graph | None = None
    claim: GenerationRecord | None = None
    plan: LoadPlan | None = None
    history: RestartHistory = field(default_factory=RestartHistory)
    incident: Incident | None = None
    damaged: frozenset[str] = frozenset()
    worker: WorkerId | None = None
    process: WorkerProcess | None = None
    running_since: datetime | None = None
    parallelism: int = 1
    profile: list[EpochCommitted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self.channel = ControlChannel(self._receive)
        self.address: tuple[str, int] | None = None
        self.parallelism = self.desired.parallelism

    # ---------------------------------------------------------------- requests

    def request_stop(self, mode: StopMode) -> None:
        """Ask for a stop; a harder mode than the one asked for before wins."""
        order = list(StopMode)
        if self.desired.stop is None or order.index(mode) > order.index(self.desired.stop):
            self.desired.stop = mode
        self._changed.set()

    # ---------------------------------------------------------------- watching

    async def tick(self, at_most: timedelta = PROGRESS_TICK) -> None:
        """Wait until something happens, or for one progress tick, or for less."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(at_most, PROGRESS_TICK).total_seconds()):
                await self._changed.wait()
        self._changed.clear()

    def detect(self) -> Failure | None:
        """Ask the failure detector. What a worker said of itself goes before what was seen from
        outside.
        """
        now = self.clock.now()
        epoch = self.model.sealed_epoch
        if (event := self.model.task_failed()) is not None:
            return task_failure(event)
        if (status := self.model.worker_exited()) is not None:
            return exit_failure(status, epoch)
        if (status := self.model.worker_timedout(now)) is not None:
            return timeout_failure(status, epoch)
        if (stalled := self.model.progress_stalled(now)) is not None:
            return stall_failure(stalled)
        return None

    def _receive(self, message: FromWorker) -> None:
        now = self.clock.now()
        if not self.model.observe(message, now):
            return
        match message:
            case EpochSealed():
                self.events.emit(
                    "checkpoint",
                    epoch=message.epoch,
                    rows=message.rows,
                    bytes=message.bytes,
                    duration=round(message.seconds, 3),
                    watermark=message.watermark,
                    state_bytes=message.state_bytes,
                    late=sum(message.counts.late_rows.values()),
                    bad=sum(message.counts.bad_rows.values()),
                    rows_out=sum(message.counts.rows_out.values()),
                )
            case EpochCommitted():
                self.events.emit("committed", epoch=message.epoch)
                self.profile.append(message)
                self.close_incident(now)
            case CheckpointDamaged():
                self.events.emit(
                    "checkpoint_damaged", epoch=message.epoch, reasons=list(message.reasons)
                )
            case StateRestored() if message.committed_pending:
                self.events.emit("committed", epoch=message.epoch)
                self.phase_done("restore")
                self.close_incident(now)
        self._changed.set()

    async def _exited(self, worker: WorkerId, status: int) -> None:
        # The last words of a worker may still be on their way.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self.channel.drained(worker)
        self.model.note_exit(worker, status, self.clock.now())
        self._changed.set()

    # ---------------------------------------------------------------- acting

    async def plan_restore(self) -> None:
        """Claim the next generation, and plan the load from the newest checkpoint that is whole.

        The claim comes first: from then on no older generation can seal an epoch behind the plan's
        back.
        """
        self.parallelism = self.desired.parallelism
        self.claim = await asyncio.to_thread(self.backend.claim_generation, self.clock.now())
        self.plan = await asyncio.to_thread(
            self.backend.prepare_checkpoint_load, self.claim, self.parallelism, self.damaged
        )
        for fallback in self.plan.fallbacks:
            self.events.emit("fallback", epoch=fallback.epoch, reasons=list(fallback.reasons))
        if self.incident is not None:
            self.incident.restored_epoch = self.plan.epoch
            self.incident.fallbacks = self.plan.fallbacks
            self.incident.count_replayed(self.plan)

    async def start_worker(self) -> None:
        """Start a process for the claimed generation and hand it graph and load plan."""
        assert self.claim is not None
        self.address = self.address or await self.channel.open()
        worker = WorkerId(f"worker-{self.claim.generation}-{uuid.uuid4().hex[:6]}")
        token = self.channel.expect(worker, self.claim.generation)
        order = WorkerOrder(
            worker, self.claim.generation, self.address, token, self.definition.log_file
        )
        self.process = await self.scheduler.start(order, self._exited)
        self.worker = worker
        self.model.expect(worker, self.claim.generation, self.process.pid, self.clock.now())
        self.events.emit(
            "worker_started", pid=self.process.pid, generation=self.claim.generation, worker=worker
        )

    async def hand_over(self) -> None:
        """Give the connected worker its order."""
        assert self.worker is not None
        assert self.plan is not None
        assert self.graph is not None
        functions = self.definition.functions_file
        await self.channel.send(
            self.worker,
            StartExecution(
                job=self.definition.name,
                state_url=self.definition.state_url,
                graph=self.graph,
                plan=self.plan,
                settings=self.definition.settings,
                functions_file=str(functions) if functions else None,
            ),
        )

    async def tear_down(self) -> None:
        """Make sure that no process of this job is left."""
        if self.process is not None:
            await self.process.tear_down()
        self.process = None
        self.worker = None
        self.running_since = None

    # ---------------------------------------------------------------- incidents

    def note_failure(self, failure: Failure) -> None:
        """Say that something failed; open an incident, or count it to the one that is open."""
        facts = {
            "kind": failure.kind,
            "operator_id": failure.operator,
            "subtask": failure.subtask,
            "domain": failure.domain,
            "retry_hint": failure.retry_hint,
            "error": failure.reason,
            "epoch": failure.epoch,
            "generation": self.claim.generation if self.claim else None,
        }
        self.events.emit("failure", **facts)
        if failure.damaged_path:
            self.damaged |= {failure.damaged_path}
        if self.incident is None:
            self.incident = Incident(self.clock.now(), failure)
        else:
            self.incident.attempts += 1
        self.incident.started_rows.update(self.model.started_rows)

    def close_incident(self, resumed_at: datetime | None) -> None:
        """The first epoch after a failure is committed, or the job is at its end: it is over.

        None: it ended without having come back.
        """
        if self.incident is not None:
            self.incident.resumed_at = resumed_at
            if resumed_at is not None:
                self.incident.phase_done("resume", resumed_at)
            self.events.emit("incident", **self.incident.facts())
            self.incident = None

    def phase_done(self, name: str) -> None:
        if self.incident is not None:
            self.incident.phase_done(name, self.clock.now())

    def healthy_for(self) -> timedelta:
        """How long the job has been running without a failure."""
        return self.clock.now() - self.running_since if self.running_since else timedelta(0)
