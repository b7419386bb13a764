"""Reconciles one job with its desired state: run after run, each under a supervisor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from pydantic import JsonValue, TypeAdapter

from resurgence.clock import Clock
from resurgence.control.background import Lane, in_thread
from resurgence.control.definitions.job_environment import JobEnvironment
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_claim import RequireOwned
from resurgence.control.jobs.job_record import (
    JobRecord,
    JobStatus,
    StopMode,
    Wanted,
    WorkerRecord,
    should_start,
)
from resurgence.control.jobs.restart_policy import RestartHistory
from resurgence.control.jobs.supervisor import Supervisor
from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.events import Event, EventLog
from resurgence.control.telemetry.job_metrics import IfItDiesNow, JobMetrics
from resurgence.control.telemetry.prometheus import JobSample
from resurgence.control.workers.worker_pool import WorkerHandle, WorkerPool
from resurgence.errors import JobLost, ResurgenceError
from resurgence.ids import ControllerId, JobName
from resurgence.state.backend import StateBackend
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind
from resurgence.storage.object_store import ObjectStore

_PAUSE = timedelta(seconds=1)
_HISTORY: TypeAdapter[RestartHistory] = TypeAdapter(RestartHistory)
_LOADED_EVENTS = 5_000
_DELETED_TOGETHER = 1_000

log = logging.getLogger("resurgence.control")


class JobKeeper:
    """One job of a service."""

    def __init__(
        self,
        record: JobRecord,
        metadata: MetadataStore,
        pool: WorkerPool,
        environment: JobEnvironment,
        clock: Clock,
        note: Callable[[JobName, Event], None],
        service: str,
        owner: ControllerId | None = None,
        require_owned: RequireOwned | None = None,
        lane: Lane | None = None,
    ) -> None:
        """`service` is the id of the service, which its other processes share. `owner` is this
        controller, if it is not the only one; `require_owned` asks whether it still has the job.
        `lane` is for the calls of the database that all jobs make at about the same time.
        """
        self.name = record.name
        self.record = record
        self.changing = asyncio.Lock()
        """Serialises the requests to this job."""
        self.delay = timedelta(0)
        """The wait before the first start."""
        self.stray: WorkerRecord | None = None
        """A worker that another controller, which may still live, had for the job."""
        self.on_deleted: Callable[[JobKeeper], None] = lambda _keeper: None
        """Called when the job is deleted, or lost to another controller."""
        self.discard_events: Callable[[JobName], Awaitable[None]] | None = None
        self._last_status = record.status
        self._metadata = metadata
        self._pool = pool
        self._environment = environment
        self._clock = clock
        self._service = service
        self._owner = owner
        self._require_owned = require_owned
        self._lane = lane or Lane(1)
        self._metrics = JobMetrics(state=record.status.state)
        self._events = EventLog(clock, [self._metrics.note, lambda event: note(self.name, event)])
        self._ctx: JobContext | None = None
        self._supervisor: Supervisor | None = None
        self._previous: Supervisor | None = None
        self._changed = asyncio.Event()
        self._closing: StopMode | None = None
        self._task: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------- life

    def adopt(self) -> bool:
        """Expect the worker that the job had under an earlier controller. Return whether it had
        one.
        """
        status = self.record.status
        if status.worker is None or status.state in TERMINAL:
            return False
        try:
            self._ctx = self._context(run=status.run)
        except ResurgenceError:
            # The start of the job reports what is wrong with its definition.
            return False
        self._ctx.parallelism = status.parallelism or self._ctx.parallelism
        self._ctx.history = _history(status)
        self._ctx.adopt_worker(status.worker)
        return True

    def begin(self) -> None:
        """Start to reconcile the job in the background."""
        self._task = asyncio.create_task(self._reconcile())

    def set_desired(self, record: JobRecord) -> None:
        """Apply a desired state that has been stored, unless a newer one has been applied."""
        if record.revision < self.record.revision:
            return
        self.record = record
        if self._ctx is not None:
            self._ctx.requests.set_desired(record.desired)
        self._changed.set()

    async def close(self, mode: StopMode) -> None:
        """Stop the worker because the controller shuts down. The desired state does not change."""
        self._closing = mode
        if self._ctx is not None:
            self._ctx.requests.close(mode)
        self._changed.set()
        if self._task is not None:
            if self._ctx is None:
                # Nothing runs: it waits, or deletes, which the next controller resumes.
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def let_go(self) -> None:
        """End the job's worker and write nothing more: another controller owns the job."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._ctx is not None:
            await self._ctx.tear_down()

    async def store_status(self) -> None:
        """Write the status of a closed job: the controller that claims the job next reads it."""
        await self._retire_previous()
        await self._record_last_status()

    def hurry(self) -> None:
        """Stop waiting for a checkpoint if the controller is shutting down."""
        if self._closing is not None and self._ctx is not None:
            self._ctx.requests.close(StopMode.FORCE)

    async def _reconcile(self) -> None:
        try:
            await self._reconcile_until_closed()
        except JobLost as error:
            log.warning("let go of job %s: %s", self.name, error.message)
            self.on_deleted(self)

    async def _reconcile_until_closed(self) -> None:
        if self.stray is not None:
            await self._pool.end_stray(self.stray)
        await self._load_metrics()
        await self._wait(self.delay)
        while self._closing is None:
            self._changed.clear()
            if should_start(self.record.desired, self.status):
                await self._run()
            elif self.record.desired.wanted is Wanted.DELETED:
                if await self._deleted():
                    self.on_deleted(self)
                    return
                await self._wait(_PAUSE)
            else:
                await self._changed.wait()

    async def _wait(self, span: timedelta) -> None:
        """Wait for that long, or until a request arrives."""
        if span:
            try:
                async with asyncio.timeout(span.total_seconds()):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def _load_metrics(self) -> None:
        """Rebuild the metrics from the events stored by earlier controllers."""
        try:
            last = await self._lane.call(self._metadata.last_event_id, self.name)
            stored = await self._lane.call(
                self._metadata.events,
                self.name,
                after=max(0, last - _LOADED_EVENTS),
                limit=_LOADED_EVENTS,
            )
        except ResurgenceError as error:
            log.warning("cannot load the events of job %s: %s", self.name, error.message)
            return
        for each in stored:
            self._metrics.note(each.event)

    async def _run(self) -> None:
        """Run the job once, to its end."""
        before = self.status
        await in_thread(self._environment.tidy_logs, self.name)
        interrupted_in = before.state if before.state not in TERMINAL and before.run else None
        if interrupted_in is StateName.FAILING and before.run >= self.record.desired.run:
            await self._finish_failing(before)
            return
        try:
            if self._ctx is None:
                self._ctx = self._context(run=self.record.desired.run)
                self._ctx.history = _history(before) if interrupted_in else RestartHistory()
            if self._closing is not None:
                self._ctx.requests.close(self._closing)
            await self._retire_previous()
            self._supervisor = Supervisor(
                self._ctx,
                self._metadata,
                interrupted_in=interrupted_in,
                owner=self._owner,
                lane=self._lane,
            )
            await self._supervisor.run()
            self._last_status = self._supervisor.status
        except JobLost:
            raise
        except Exception as error:
            # A bug, or a definition that is no longer valid: it ends the job, not the service.
            log.exception("run of job %s failed", self.name)
            await self._fail(error)
        finally:
            self._ctx = None
            self._previous, self._supervisor = self._supervisor, None

    async def _finish_failing(self, before: JobStatus) -> None:
        """Complete the transition to Failed that an earlier controller did not finish."""
        if self._ctx is not None:
            await self._ctx.tear_down()
            self._ctx = None
        self._last_status = replace(before, state=StateName.FAILED, worker=None)
        facts: dict[str, JsonValue] = {"from": StateName.FAILING, "to": StateName.FAILED}
        self._events.emit("state", **facts, reason=before.cause)
        try:
            await self._record_last_status()
        except ResurgenceError as failure:
            log.warning("cannot store the status of job %s: %s", self.name, failure.message)

    async def _record_last_status(self) -> None:
        await self._lane.call(
            self._metadata.record_status, self.name, self._last_status, self._owner
        )

    async def _retire_previous(self) -> None:
        """Retire the supervisor of the previous run, which may still wait for the database."""
        if self._previous is not None:
            await self._previous.retire()
            self._previous = None

    async def _fail(self, error: Exception) -> None:
        message = (
            error.message if isinstance(error, ResurgenceError) else f"internal error: {error!r}"
        )
        before = self.status
        self._last_status = replace(
            before,
            state=StateName.FAILED,
            cause=message,
            run=self.record.desired.run,
            worker=None,
            changed_at=self._clock.now(),
        )
        begun_in = StateName.CREATED if before.state in TERMINAL else before.state
        path = dict.fromkeys((begun_in, StateName.FAILING, StateName.FAILED))
        for source, target in pairwise(path):
            facts: dict[str, JsonValue] = {"from": source, "to": target}
            self._events.emit("state", **facts, reason=message)
        try:
            await self._record_last_status()
        except ResurgenceError as failure:
            log.warning("cannot store the status of job %s: %s", self.name, failure.message)

    def _context(self, run: int) -> JobContext:
        record = self.record
        definition = self._environment.define(self.name, record.pipeline)
        ctx = JobContext.of(
            definition,
            record.desired,
            open_state(record),
            self._pool,
            self._events,
            self._clock,
            owner_here(
                OwnerKind.SERVICE, self._service, self._clock.now(), control=self._pool.address
            ),
        )
        ctx.claim.require_owned = self._require_owned
        ctx.claim.last_known = self._last_status.generation
        ctx.run, ctx.reset_run = run, self._last_status.reset_run
        used = record.pipeline

        def redefine() -> None:
            nonlocal used
            if self.record.pipeline != used:
                used = self.record.pipeline
                ctx.define(self._environment.define(self.name, used))

        ctx.apply_edits = redefine
        return ctx

    async def _deleted(self) -> bool:
        """Delete the job, its record last, so that a later controller can resume the deletion."""
        await self._retire_previous()
        try:
            if self.record.desired.delete_state:
                await in_thread(_delete_state, self.record, self._require_owned)
            await in_thread(self._environment.remove, self.name)
            if self.discard_events is not None:
                await self.discard_events(self.name)
            await in_thread(self._metadata.delete_job, self.name, self._owner)
        except JobLost:
            raise
        except ResurgenceError as error:
            log.warning("cannot delete job %s yet: %s", self.name, error.message)
            return False
        return True

    # ---------------------------------------------------------------- views

    @property
    def status(self) -> JobStatus:
        """The current status of the job."""
        return self._supervisor.status if self._supervisor else self._last_status

    @property
    def handle(self) -> WorkerHandle | None:
        return self._ctx.worker.handle if self._ctx else None

    @property
    def worker_state(self) -> str:
        """The state of the job's worker."""
        workers = self._ctx.model.workers if self._ctx else ()
        return str(workers[0].state) if workers else "none"

    @property
    def restarts_left(self) -> int | None:
        """The remaining restart budget; None if the job does not run."""
        if self._ctx is None:
            return None
        allowed = self._ctx.definition.settings.pipeline.allowed_restarts
        return max(0, allowed - self._ctx.history.restarts)

    @property
    def if_it_dies_now(self) -> IfItDiesNow | None:
        """The cost of losing the worker now; None without a worker."""
        if self._ctx is None or self._ctx.worker.handle is None:
            return None
        return self._metrics.if_it_dies_now(self._ctx.model.started_rows.values())

    def progress(self) -> dict[str, JsonValue]:
        """Return the current progress, as the API shows it."""
        dies = self.if_it_dies_now
        incident = self._ctx.incidents.open if self._ctx else None
        return {
            **self._metrics.progress(self._clock.now()),
            "restarts_left": self.restarts_left,
            "if_it_dies_now": dies.as_json() if dies else None,
            "incident": incident.facts() if incident else None,
        }

    def current(self) -> JobRecord:
        """Return the record with the current status."""
        return replace(self.record, status=self.status)

    def sample(self) -> JobSample:
        """Return the values for Prometheus."""
        return JobSample(
            name=self.name,
            state=self.status.state,
            metrics=self._metrics,
            restarts_left=self.restarts_left or 0,
            if_it_dies_now=self.if_it_dies_now,
            executors=self.handle.executors if self.handle else (),
        )


def open_state(record: JobRecord) -> StateBackend:
    """Open the checkpoints of a job."""
    return StateBackend(ObjectStore(record.pipeline.state_url, private=True), record.name)


def _history(status: JobStatus) -> RestartHistory:
    """Return the restart history stored by an earlier controller."""
    if status.history is None:
        return RestartHistory()
    try:
        return _HISTORY.validate_python(status.history)
    except ValueError:
        return RestartHistory()


def _delete_state(record: JobRecord, require_owned: RequireOwned | None) -> None:
    """Delete the state of a job. A controller that was frozen here must not delete the state of a
    new job of that name, so it asks again and again whether it owns the job.
    """
    store = ObjectStore(record.pipeline.state_url)
    found = [each.path for each in store.list(JobPaths(record.name).job)]
    for first in range(0, len(found), _DELETED_TOGETHER):
        if require_owned is not None:
            require_owned(False)
        store.delete(found[first : first + _DELETED_TOGETHER])
