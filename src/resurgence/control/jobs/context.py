"""The context of one job, on which its states work.

Its parts are `requests` (the desired state), `claim` (generation and lease), `worker` (the
process), `incidents` (failures) and `model` (the failure detector's). This module combines them,
and owns the actions that need several of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from resurgence.clock import Clock
from resurgence.connectors.registry import jar_sets_of, newest_held
from resurgence.control.background import in_thread
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.detection.detector import detect
from resurgence.control.detection.failure import Failure
from resurgence.control.detection.running_job_model import RunningJobModel
from resurgence.control.jobs.job_claim import JobClaim
from resurgence.control.jobs.job_incidents import JobIncidents
from resurgence.control.jobs.job_record import DesiredConfig, WorkerRecord
from resurgence.control.jobs.job_worker import JobWorker
from resurgence.control.jobs.requests import JobRequests
from resurgence.control.jobs.restart_policy import RestartHistory
from resurgence.control.jobs.wake_up import WakeUp
from resurgence.control.telemetry.events import EventLog
from resurgence.control.telemetry.worker_events import event_of
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.spark.connector_jars import may_download, provide, with_jars
from resurgence.errors import UserError
from resurgence.graph.model import Graph
from resurgence.ids import Epoch, JobIdentity
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import Owner
from resurgence.worker.messages import EpochCommitted, EpochProfiled, FromWorker, StateRestored

_JITTER = random.SystemRandom()
"""Separate from the global generator, which may be seeded for reproducibility."""


_SHORTEST_WAIT = timedelta(milliseconds=10)


async def _nothing() -> None:
    return


@dataclass
class JobContext:
    """Used by one job's supervisor and its states only."""

    definition: JobDefinition
    backend: StateBackend
    events: EventLog
    clock: Clock
    model: RunningJobModel
    requests: JobRequests
    claim: JobClaim
    worker: JobWorker
    incidents: JobIncidents
    wake_up: WakeUp
    detector_time: Callable[[], datetime]
    """Returns the time of the failure detector."""
    jitter: Callable[[], float] = _JITTER.random
    run: int = 0
    """The current run; the desired one is ahead after a restart request."""
    reset_run: int = 0
    """The last run whose reset or rollback is done."""
    graph: Graph | None = None
    plan: LoadPlan | None = None
    jars: tuple[Path, ...] = ()
    """What the worker's Spark needs besides its own jars."""
    history: RestartHistory = field(default_factory=RestartHistory)
    running_since: datetime | None = None
    parallelism: int = 0
    """Of the current run."""
    profiles: deque[EpochProfile] | None = None
    """Collects where the time of each epoch went; None: not collected."""
    save: Callable[[], Awaitable[None]] = _nothing
    """Writes the status; set by the supervisor."""
    apply_edits: Callable[[], None] = lambda: None
    """Calls `define` if the user has edited the pipeline."""

    @classmethod
    def of(
        cls,
        definition: JobDefinition,
        desired: DesiredConfig,
        backend: StateBackend,
        pool: WorkerPool,
        events: EventLog,
        clock: Clock,
        owner: Owner,
    ) -> JobContext:
        """Create the context of a job that has not started."""
        pipeline = definition.settings.pipeline
        wake_up = WakeUp()
        requests = JobRequests(desired, wake_up)
        model = RunningJobModel(
            heartbeat_timeout=pipeline.heartbeat_timeout, epoch_timeout=pipeline.epoch_timeout
        )
        return cls(
            definition=definition,
            backend=backend,
            events=events,
            clock=clock,
            model=model,
            requests=requests,
            claim=JobClaim(backend, owner, clock, events, requests, wake_up),
            worker=JobWorker(pool, model, events, wake_up),
            incidents=JobIncidents(events, clock),
            wake_up=wake_up,
            detector_time=pool.detector_clock.now,
            parallelism=desired.parallelism,
        )

    @property
    def stop_requested(self) -> bool:
        return self.requests.stop is not None

    @property
    def restart_requested(self) -> bool:
        return self.requests.desired.run > self.run

    def define(self, definition: JobDefinition) -> None:
        """Replace the definition after an edit. Discards the graph and the restart history."""
        self.definition, self.graph = definition, None
        self.history = RestartHistory()
        pipeline = definition.settings.pipeline
        self.model.retime(
            heartbeat_timeout=pipeline.heartbeat_timeout, epoch_timeout=pipeline.epoch_timeout
        )

    def begin_run(self) -> None:
        """Begin the requested run with a fresh restart history."""
        self.run = self.requests.desired.run
        self.history = RestartHistory()

    # ---------------------------------------------------------------- watching

    async def tick(self, at_most: timedelta | None = None) -> None:
        """Wait for a notification, but at most one progress tick or `at_most`."""
        await (self.wake_up.tick() if at_most is None else self.wake_up.tick(at_most))

    async def until_due(self) -> None:
        """Wait for a notification, or until the detector could find a failure. A thousand running
        jobs must not each wake up five times a second to find none.
        """
        due = self.model.due_in(self.detector_time())
        await self.wake_up.wait(max(due, _SHORTEST_WAIT))

    def detect(self) -> Failure | None:
        """Return the failure that the detector finds now, if any."""
        return detect(self.model, self.detector_time())

    def receive(self, message: FromWorker) -> None:
        """Process a message of the worker."""
        if not self.model.observe(message, self.detector_time()):
            return
        event = event_of(message)
        if event is not None:
            kind, facts = event
            self.events.emit(kind, **facts)
        match message:
            case EpochCommitted():
                self.incidents.close(self.clock.now())
            case EpochProfiled() if self.profiles is not None:
                self.profiles.append(message.profile)
            case StateRestored() if message.committed_pending:
                self.incidents.phase_done("restore")
                self.incidents.close(self.clock.now())
        self.wake_up.notify()

    def note_failure(self, failure: Failure) -> None:
        """Report a failure; open an incident, or add it to the open one."""
        generation = self.claim.record.generation if self.claim.record else None
        self.incidents.note_failure(failure, generation, self.model.started_rows)

    def healthy_for(self) -> timedelta:
        """Return how long the job has been running without a failure."""
        return self.clock.now() - self.running_since if self.running_since else timedelta(0)

    # ---------------------------------------------------------------- acting

    async def plan_restore(self) -> None:
        """Claim the next generation, and plan the load from the newest valid checkpoint.

        The claim comes first, so that no older generation can seal an epoch after the plan is made.
        All requests so far take effect here: another parallelism, an edited pipeline, a restart, a
        rollback.
        """
        desired = self.requests.desired
        self.apply_edits()
        if desired.parallelism != self.parallelism:
            self.parallelism = desired.parallelism
            self.history = RestartHistory()
        await self.roll_back()
        claim = await self.claim.claim()
        self.plan = await in_thread(
            self.backend.prepare_checkpoint_load,
            claim,
            self.parallelism,
            self.incidents.damaged,
        )
        self.run = max(self.run, desired.run)
        for fallback in self.plan.fallbacks:
            self.events.emit("fallback", epoch=fallback.epoch, reasons=list(fallback.reasons))
        self.incidents.planned(self.plan)

    async def roll_back(self) -> None:
        """Do the requested rollback or reset, once. Sinks retract their output when the next
        generation restores.
        """
        desired = self.requests.desired
        if desired.reset_run <= self.reset_run:
            return
        claim = await self.claim.claim()
        event: dict[str, JsonValue] = {"run": desired.run}
        try:
            held = await in_thread(self._newest_held, claim.job)
            record = await in_thread(
                self.backend.record_rollback, claim, desired.reset_epoch, self.clock.now(), held
            )
        except UserError as error:
            # The request was valid, but retention may have removed the checkpoint since. The job
            # resumes from its newest checkpoint, as if there had been no request.
            kind = "rollback_refused"
            event |= {"to_epoch": desired.reset_epoch, "error": error.message, "hint": error.hint}
        else:
            kind = "rollback" if record.to_epoch else "reset"
            event |= {"to_epoch": record.to_epoch, "highest_epoch": record.highest_epoch}
        self.reset_run = desired.reset_run
        self.incidents.damaged = frozenset()
        await self.save()
        self.events.emit(kind, **event)

    def _newest_held(self, job: JobIdentity) -> Epoch:
        """Return the newest epoch that the job's sinks hold; the state may have no record of it."""
        definition = self.definition
        graph = self.graph or definition.compile(definition.sql)
        return newest_held(graph, definition.state_url, definition.name, job)

    @property
    def jar_sets(self) -> tuple[str, ...]:
        """The names of the sets of jars that the graph needs."""
        return jar_sets_of(self.graph) if self.graph is not None else ()

    def may_download_jars(self) -> bool:
        return may_download(self.jar_sets, self.definition.settings.connectors.jars)

    async def provide_jars(self) -> None:
        """Find the jars that the worker needs; download them if necessary, with events on the way."""
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(partial(self.events.emit, "jars", message=text))

        directory = self.definition.settings.connectors.jars
        self.jars = await in_thread(provide, self.jar_sets, directory, report)

    async def start_worker(self) -> None:
        """Acquire a worker for the claimed generation."""
        generation = self.claim.generation
        spark = with_jars(self.definition.settings.spark, self.jars)
        origin = await self.worker.acquire(self.definition, spark, generation, self.receive)
        await self.save()
        self.worker.report_start(origin)

    def adopt_worker(self, record: WorkerRecord) -> None:
        """Expect the worker of an earlier controller to connect."""
        self.worker.adopt(self.definition, record, self.receive)

    async def start_execution(self) -> None:
        """Order the connected worker to restore and run."""
        assert self.graph is not None
        assert self.plan is not None
        await self.worker.start_execution(self.definition, self.graph, self.plan)

    async def tear_down(self) -> None:
        """End the worker process of this job, if there is one."""
        await self.worker.tear_down()
        self.running_since = None
