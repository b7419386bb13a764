"""What a job's states share: its definition, what it wants to be, what is known of it, and the
means to act.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from resurgence.clock import Clock
from resurgence.config import Settings
from resurgence.connectors.registry import newest_held
from resurgence.control.background import in_thread
from resurgence.control.detection.failure import (
    Failure,
    exit_failure,
    stall_failure,
    task_failure,
    timeout_failure,
)
from resurgence.control.detection.running_job_model import RunningJobModel
from resurgence.control.jobs.job_record import DesiredConfig, StopMode, WorkerRecord, stopped
from resurgence.control.jobs.restart_policy import RestartHistory
from resurgence.control.telemetry.events import EventLog
from resurgence.control.telemetry.incident import Incident
from resurgence.control.workers.workforce import Hand, Origin, Workforce
from resurgence.errors import JobHeld, UserError
from resurgence.graph.model import Graph
from resurgence.ids import NO_GENERATION, Epoch, Generation, JobIdentity, JobName, WorkerId
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.ownership import LEASE, Sighting
from resurgence.state.records import GenerationRecord, Owner
from resurgence.worker.messages import (
    CheckpointDamaged,
    EpochCommitted,
    EpochSealed,
    FromWorker,
    Message,
    StartExecution,
    StateRestored,
)

PROGRESS_TICK = timedelta(milliseconds=200)
_T = TypeVar("_T")
_DICE = random.SystemRandom()
"""Not the program's own, whose throws may have to be repeatable."""


@dataclass(frozen=True)
class JobDefinition:
    """The pipeline as its user wrote it, and where its state lies."""

    name: JobName
    sql: str
    state_url: str
    settings: Settings
    compile: Callable[[str], Graph]
    functions_file: Path | None = None
    log_file: Callable[[WorkerId], Path] = lambda worker: Path(f"{worker}.log")


async def _nothing() -> None:
    return


@dataclass
class JobContext:
    """One job's supervisor and its states work on this; nobody else does."""

    definition: JobDefinition
    desired: DesiredConfig
    backend: StateBackend
    workforce: Workforce
    events: EventLog
    clock: Clock
    model: RunningJobModel
    owner: Owner
    """Who runs the job, as others see it."""
    take_over: bool = False
    """Claim the job although a live process elsewhere runs it."""
    jitter: Callable[[], float] = _DICE.random
    run: int = 0
    """The run that has been begun; the desired one is ahead when a restart was asked for."""
    reset_run: int = 0
    """The last run whose reset or rollback has been done."""
    graph: Graph | None = None
    claim: GenerationRecord | None = None
    plan: LoadPlan | None = None
    history: RestartHistory = field(default_factory=RestartHistory)
    incident: Incident | None = None
    damaged: frozenset[str] = frozenset()
    hand: Hand | None = None
    running_since: datetime | None = None
    parallelism: int = 0
    """Of the run that has been begun."""
    profile: list[EpochCommitted] | None = None
    """Where to keep what each epoch cost, if that is wanted."""
    save: Callable[[], Awaitable[None]] = _nothing
    """Writes the status; the supervisor's."""
    take_up_edits: Callable[[], None] = lambda: None
    """Calls `define` if the user edited the pipeline."""

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._closing: StopMode | None = None
        self._sighting: Sighting | None = None
        self.parallelism = self.parallelism or self.desired.parallelism

    # ---------------------------------------------------------------- requests

    def want(self, desired: DesiredConfig) -> None:
        """What the user wants has changed."""
        self.desired = desired
        self._changed.set()

    def request_stop(self, mode: StopMode) -> None:
        """Ask for a stop; a harder mode than the one asked for before wins."""
        self.want(stopped(self.desired, mode))

    def define(self, definition: JobDefinition) -> None:
        """The pipeline was edited: it is compiled anew, and what failed before does not count."""
        self.definition, self.graph = definition, None
        self.history = RestartHistory()
        pipeline = definition.settings.pipeline
        self.model.retime(
            heartbeat_timeout=pipeline.heartbeat_timeout, epoch_timeout=pipeline.epoch_timeout
        )

    def close(self, mode: StopMode) -> None:
        """The controller ends: stop, whatever is wanted of the job later."""
        self._closing = mode
        self._changed.set()

    @property
    def stop(self) -> StopMode | None:
        """How to stop, if the job is not to run."""
        return self._closing or self.desired.stop

    @property
    def is_closing(self) -> bool:
        """The controller ends."""
        return self._closing is not None

    @property
    def restart_asked(self) -> bool:
        return self.desired.run > self.run

    def begin_run(self) -> None:
        """Take up the restart that was asked for. What failed before does not count any more."""
        self.run = self.desired.run
        self.history = RestartHistory()

    # ---------------------------------------------------------------- watching

    async def tick(self, at_most: timedelta = PROGRESS_TICK) -> None:
        """Wait until something happens, or for one progress tick, or for less."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(at_most, PROGRESS_TICK).total_seconds()):
                await self._changed.wait()
        self._changed.clear()

    @property
    def listened(self) -> datetime:
        """The time of the failure detector."""
        return self.workforce.listening.now()

    def detect(self) -> Failure | None:
        """Ask the failure detector. What a worker said of itself goes before what was seen from
        outside.
        """
        now = self.listened
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
        if not self.model.observe(message, self.listened):
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
                    partly_late=sum(message.counts.partly_late_rows.values()),
                    bad=sum(message.counts.bad_rows.values()),
                    rows_out=sum(message.counts.rows_out.values()),
                )
            case EpochCommitted():
                self.events.emit("committed", epoch=message.epoch)
                if self.profile is not None:
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

    async def _exited(self, worker: WorkerId, status: int | None) -> None:
        self.model.note_exit(worker, status, self.listened)
        self._changed.set()

    # ---------------------------------------------------------------- acting

    async def plan_restore(self) -> None:
        """Claim the next generation, and plan the load from the newest checkpoint that is whole.

        The claim comes first: from then on no older generation can seal an epoch behind the plan's
        back. Whatever the user asked for until now is taken up here: another parallelism, an edited
        pipeline, a restart, a rollback.
        """
        desired = self.desired
        self.take_up_edits()
        if desired.parallelism != self.parallelism:
            self.parallelism = desired.parallelism
            self.history = RestartHistory()
        await self.roll_back()
        self.claim = await self._claimed(self.clock.now())
        self.plan = await in_thread(
            self.backend.prepare_checkpoint_load, self.claim, self.parallelism, self.damaged
        )
        self.run = max(self.run, desired.run)
        for fallback in self.plan.fallbacks:
            self.events.emit("fallback", epoch=fallback.epoch, reasons=list(fallback.reasons))
        if self.incident is not None:
            self.incident.restored_epoch = self.plan.epoch
            self.incident.fallbacks = self.plan.fallbacks
            self.incident.count_replayed(self.plan)

    async def roll_back(self) -> None:
        """Do the rollback or reset that was asked for, once. Sinks take back their output when the
        next generation restores.
        """
        desired = self.desired
        if desired.reset_run <= self.reset_run:
            return
        now = self.clock.now()
        self.claim = await self._claimed(now)
        event: dict[str, JsonValue] = {"run": desired.run}
        try:
            held = await in_thread(self._newest_held, self.claim.job)
            record = await in_thread(
                self.backend.record_rollback, self.claim, desired.reset_epoch, now, held
            )
        except UserError as error:
            # The request was checked, but retention may have removed the checkpoint since. The job
            # goes on from its newest one, as if nothing had been asked.
            kind = "rollback_refused"
            event |= {"to_epoch": desired.reset_epoch, "error": error.message, "hint": error.hint}
        else:
            kind = "rollback" if record.to_epoch else "reset"
            event |= {"to_epoch": record.to_epoch, "highest_epoch": record.highest_epoch}
        self.reset_run = desired.reset_run
        self.damaged = frozenset()
        await self.save()
        self.events.emit(kind, **event)

    def _newest_held(self, job: JobIdentity) -> Epoch:
        """The newest epoch of the job's sinks, which the state may have no record of."""
        definition = self.definition
        graph = self.graph or definition.compile(definition.sql)
        return newest_held(graph, definition.state_url, definition.name, job)

    async def _claimed(self, now: datetime) -> GenerationRecord:
        abandoned = threading.Event()

        def claim() -> GenerationRecord:
            return self.backend.claim_generation(
                now,
                abandoned.is_set,
                owner=self.owner,
                permit=self._permit,
                directory=str(Path.cwd()),
            )

        try:
            record = await self._once_free(claim)
        except asyncio.CancelledError:
            # The call may hang in its thread, and would claim when storage answers again.
            abandoned.set()
            raise
        # Whoever takes the job away from here is not fenced out in return.
        self.take_over = False
        return record

    # ---------------------------------------------------------------- ownership

    async def require_free(self) -> None:
        """Raise JobHeld if a live process elsewhere runs the job."""
        await self._once_free(lambda: self._permit(self.backend.newest_generation()))

    def _permit(self, newest: Generation) -> None:
        mine = self.claim.generation if self.claim else NO_GENERATION
        if not self.take_over and newest != mine:
            self.backend.leases.require_free(
                newest, self.owner, self.clock.now(), before=self._sighting
            )

    async def _once_free(self, call: Callable[[], _T]) -> _T:
        """What the call returns. An owner elsewhere that may be dead is watched until it renews its
        lease, or that has run out.
        """
        while True:
            try:
                return await in_thread(call)
            except JobHeld as held:
                if held.proven or self.stop is not None:
                    raise
                if self._sighting is None:
                    self._sighting = Sighting(held.renewed_at, self.clock.now())
                    self.events.emit("owner_watched", owner=held.message, at_most=LEASE.seconds)
                await self.tick()

    async def renew_lease(self) -> None:
        """Say that this process still holds the job."""
        if self.claim is not None:
            job, generation = self.claim.job, self.claim.generation
            await in_thread(
                self.backend.leases.renew, job, generation, self.owner, self.clock.now()
            )

    async def release_lease(self) -> None:
        """Say that nobody holds the job any more."""
        if self.claim is not None:
            await in_thread(self.backend.leases.release, self.claim.generation)

    # ---------------------------------------------------------------- workers

    async def start_worker(self) -> None:
        """Get a worker for the claimed generation: the one that was kept, a standby, or a new
        process.
        """
        assert self.claim is not None
        generation = self.claim.generation
        spark = self.definition.settings.spark
        if self.hand is not None and (self.hand.ended or self.hand.spark != spark):
            await self.tear_down()
        if self.hand is not None:
            origin = Origin.IN_PLACE
            self.workforce.retask(self.hand, generation, self._receive, self._exited)
        else:
            self.hand, origin = await self.workforce.hire(
                generation, dict(spark), self.definition.log_file, self._receive, self._exited
            )
        self.model.expect(self.hand.worker, generation, self.hand.pid, self.listened)
        await self.save()
        self.note_worker(origin)

    def note_worker(self, origin: Origin) -> None:
        """Say that a worker works for the job now."""
        assert self.hand is not None
        self.events.emit(
            "worker_started",
            pid=self.hand.pid,
            generation=self.hand.generation,
            worker=self.hand.worker,
            origin=origin,
        )

    def adopt(self, record: WorkerRecord) -> None:
        """Expect the worker of a controller of before. What is known of it will come from itself."""
        self.hand = self.workforce.adopt(
            record,
            dict(self.definition.settings.spark),
            self.definition.log_file,
            self._receive,
            self._exited,
        )
        self.model.expect(record.worker, record.generation, record.pid, self.listened)

    @property
    def is_connected(self) -> bool:
        return self.hand is not None and self.workforce.channel.is_connected(self.hand.worker)

    async def send(self, message: Message) -> None:
        """Give the worker an order."""
        if self.hand is not None:
            await self.workforce.channel.send(self.hand.worker, message)

    async def hand_over(self) -> None:
        """Give the connected worker its order."""
        assert self.hand is not None
        assert self.plan is not None
        assert self.graph is not None
        functions = self.definition.functions_file
        await self.send(
            StartExecution(
                job=self.definition.name,
                state_url=self.definition.state_url,
                graph=self.graph,
                plan=self.plan,
                settings=self.definition.settings,
                functions_file=str(functions) if functions else None,
                token=self.hand.token,
                patience=self.workforce.patience,
            ),
        )

    async def tear_down(self) -> None:
        """Make sure that no process of this job is left."""
        if self.hand is not None:
            await self.workforce.end(self.hand)
        self.hand = None
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
            "hint": failure.hint,
            "position": failure.position,
            "traceback": failure.traceback,
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
