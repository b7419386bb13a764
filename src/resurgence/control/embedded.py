"""A controller for one job, inside the calling process: used by `resurgence run`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

from resurgence.clock import SystemClock
from resurgence.control.background import in_thread
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_record import (
    DesiredConfig,
    JobRecord,
    JobStatus,
    PipelineRecord,
    StopMode,
)
from resurgence.control.jobs.states import State
from resurgence.control.jobs.supervisor import Supervisor
from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.control.one_job import OneJob
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.event_recorder import EventRecorder
from resurgence.control.telemetry.events import Event, EventLog
from resurgence.control.telemetry.job_metrics import JobMetrics
from resurgence.control.workers.registry import make_scheduler
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.errors import StorageError
from resurgence.ids import WorkerId
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind
from resurgence.storage.object_store import ObjectStore

_LAST_EVENTS = timedelta(seconds=5)
_MOST_PROFILES = 1000
Beside = Callable[[OneJob], AbstractAsyncContextManager[None]]


class EmbeddedController:
    """Runs one job to its end. Ctrl-C stops it with a checkpoint, a second Ctrl-C at once."""

    def __init__(
        self,
        definition: JobDefinition,
        store: ObjectStore,
        metadata: MetadataStore,
        listeners: list[Callable[[Event], None]],
        *,
        take_over: bool = False,
        beside: Beside | None = None,
    ) -> None:
        """`take_over`: claim the job even if another process runs it. `beside`: a context that is
        open while the job runs.
        """
        self._definition = definition
        self._store = store
        self._metadata = metadata
        self._listeners = listeners
        self._take_over = take_over
        self._beside = beside
        self.profiles: deque[EpochProfile] = deque(maxlen=_MOST_PROFILES)
        """Of the newest epochs, if the job is profiled."""

    async def run(self) -> State:
        """Run the job and return its terminal state. Raise JobHeld, before anything is written, if
        another process runs it.
        """
        clock = SystemClock()
        definition, settings = self._definition, self._definition.settings
        recorder = EventRecorder(self._metadata)
        metrics = JobMetrics()
        events = EventLog(
            clock,
            [
                metrics.note,
                lambda event: recorder.note(definition.name, event),
                *self._listeners,
            ],
        )
        pool = WorkerPool(
            make_scheduler(settings.controller.scheduler),
            clock,
            standby=settings.controller.standby,
            standby_settings=settings,
            log_folder=definition.log_file(WorkerId("standby")).parent,
            standby_ready=lambda handle, spent: events.emit(
                "standby_ready", worker=handle.worker, pid=handle.pid, seconds=dict(spent)
            ),
        )
        ctx = JobContext.of(
            definition,
            DesiredConfig(parallelism=settings.pipeline.parallelism),
            StateBackend(self._store, definition.name),
            pool,
            events,
            clock,
            owner_here(OwnerKind.RUN, uuid.uuid4().hex, clock.now()),
        )
        ctx.claim.take_over, ctx.profiles = self._take_over, self.profiles
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: _interrupt(ctx))
        try:
            await ctx.claim.require_free()
            interrupted_in = await in_thread(self._put, ctx, clock.now())
            recording = asyncio.create_task(recorder.run())
            supervisor = Supervisor(ctx, self._metadata, interrupted_in=interrupted_in)
            job = OneJob(definition, ctx, self._metadata, metrics, clock, clock.now())
            try:
                async with self._beside(job) if self._beside else contextlib.nullcontext():
                    return await supervisor.run()
            finally:
                await recorder.flush(_LAST_EVENTS)
                recording.cancel()
        finally:
            await pool.close()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _put(self, ctx: JobContext, now: datetime) -> StateName | None:
        """Store the job. Return the state an earlier controller left it in, unless terminal."""
        definition = self._definition
        try:
            before = self._metadata.job(definition.name)
            status = before.status if before else JobStatus()
            pipeline = PipelineRecord(definition.sql, definition.state_url)
            self._metadata.put_job(
                JobRecord(definition.name, pipeline, ctx.requests.desired, status, now)
            )
        except StorageError:
            return None
        return status.state if before and status.state not in TERMINAL else None


def _interrupt(ctx: JobContext) -> None:
    ctx.requests.request_stop(StopMode.CHECKPOINT if not ctx.stop_requested else StopMode.FORCE)
