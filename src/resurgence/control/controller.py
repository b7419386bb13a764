"""The controller of a service: many jobs, one supervisor each.

A request is validated, stored, and answered; the job's keeper converges to it. No job can block
another: each call that may hang has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import ParamSpec, TypeVar

from pydantic import JsonValue

from resurgence.clock import Clock
from resurgence.connectors.path_overlap import Place, files_written, require_not_taken
from resurgence.control.background import in_thread
from resurgence.control.definitions.edit_check import require_state_kept
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.definitions.job_environment import JobEnvironment
from resurgence.control.jobs.job_keeper import JobKeeper
from resurgence.control.jobs.job_record import (
    DesiredConfig,
    JobRecord,
    JobStatus,
    PipelineRecord,
    StopMode,
    Wanted,
    WorkerRecord,
    deleted,
    rescaled,
    restarted,
    rolled_back,
    started,
    stopped,
)
from resurgence.control.jobs.rollback_preview import (
    RollbackPreview,
    held_by_sinks,
    preview_rollback,
)
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import MetadataStore, NoSuchJob, StoredEvent
from resurgence.control.telemetry.event_recorder import EventRecorder
from resurgence.control.telemetry.events import Event
from resurgence.control.telemetry.prometheus import exposition
from resurgence.control.telemetry.webhooks import Webhooks
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.engine.spark.executors import Executor
from resurgence.errors import StorageError, UserError
from resurgence.graph.model import Graph
from resurgence.ids import Epoch, JobName

_CONTROL_PORT = "control_port"
_SERVICE_ID = "service_id"
_SPREAD = timedelta(milliseconds=300)
"""The delay between the starts of jobs when a controller starts."""
_LAST_EVENTS = timedelta(seconds=5)
_READ_WITHIN = timedelta(seconds=15)
"""How long a request waits for the object store; less than the timeout of clients."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

log = logging.getLogger("resurgence.control")


@dataclass(frozen=True)
class NewJob:
    """The argument of `create`."""

    name: JobName
    sql: str
    functions: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    state_url: str | None = None
    """None: the default of the service."""
    start: bool = True


@dataclass(frozen=True)
class JobView:
    """A job as the API shows it: the record, and its current progress."""

    record: JobRecord
    progress: dict[str, JsonValue]


@dataclass(frozen=True)
class WorkerView:
    """A worker process, of a job or a standby."""

    worker: WorkerRecord
    job: JobName | None
    state: str
    phase: str
    started_at: datetime
    last_heard_at: datetime | None
    log_file: Path
    executors: tuple[Executor, ...] = ()


class Controller:
    """The operations behind the API. No method waits for a job."""

    def __init__(
        self,
        metadata: MetadataStore,
        pool: WorkerPool,
        environment: JobEnvironment,
        clock: Clock,
        webhooks: Webhooks | None = None,
    ) -> None:
        self._metadata = metadata
        self._pool = pool
        self._environment = environment
        self._clock = clock
        self._webhooks = webhooks
        self._recorder = EventRecorder(metadata)
        self._keepers: dict[JobName, JobKeeper] = {}
        self._background_tasks: list[asyncio.Task[None]] = []
        self._hurried = False
        self._service_id = ""
        self._files: dict[JobName, tuple[Place, ...]] = {}
        """The files that `single_file` sinks write, by job; only for jobs already checked."""

    # ---------------------------------------------------------------- life

    async def require_writable(self) -> None:
        """Raise StorageError if requests cannot be stored."""
        await in_thread(self._metadata.require_writable)

    async def open(self) -> None:
        """Resume all stored jobs. Adopted workers are registered before the channel listens."""
        self._service_id = await in_thread(self._stored_id)
        records = await in_thread(self._metadata.jobs)
        delayed = 0
        for record in records:
            keeper = self._add_keeper(record)
            if not keeper.adopt():
                keeper.delay = _SPREAD * delayed
                delayed += 1
        port = await in_thread(self._metadata.value, _CONTROL_PORT)
        self._pool.port = int(port or 0)
        await self._pool.open()
        assert self._pool.address is not None
        await in_thread(self._metadata.put_value, _CONTROL_PORT, str(self._pool.address[1]))
        self._background_tasks.append(asyncio.create_task(self._recorder.run()))
        if self._webhooks is not None:
            self._webhooks.start()
        for keeper in self._keepers.values():
            keeper.begin()

    async def close(self, mode: StopMode = StopMode.CHECKPOINT) -> None:
        """Stop every job's worker at a checkpoint. The desired state of the jobs does not change,
        so that the next controller resumes them.
        """
        if self._hurried:
            mode = StopMode.FORCE
        await asyncio.gather(*(each.close(mode) for each in self._keepers.values()))
        await self._pool.close()
        await self._recorder.flush(_LAST_EVENTS)
        if self._webhooks is not None:
            await self._webhooks.close(_LAST_EVENTS)
        for task in self._background_tasks:
            task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)

    def hurry(self) -> None:
        """Stop waiting for checkpoints."""
        self._hurried = True
        for keeper in self._keepers.values():
            keeper.hurry()

    def _stored_id(self) -> str:
        """Return the id that all processes serving this database share."""
        known = self._metadata.value(_SERVICE_ID)
        if known is None:
            known = uuid.uuid4().hex
            self._metadata.put_value(_SERVICE_ID, known)
        return known

    def _add_keeper(self, record: JobRecord) -> JobKeeper:
        keeper = JobKeeper(
            record,
            self._metadata,
            self._pool,
            self._environment,
            self._clock,
            self._note,
            self._service_id,
        )
        keeper.on_deleted = self._deleted
        keeper.discard_events = self._recorder.discard
        self._keepers[record.name] = keeper
        return keeper

    def _deleted(self, keeper: JobKeeper) -> None:
        # Another job may already have the name.
        if self._keepers.get(keeper.name) is keeper:
            del self._keepers[keeper.name]
            self._files.pop(keeper.name, None)

    def _note(self, job: JobName, event: Event) -> None:
        self._recorder.note(job, event)
        if self._webhooks is not None:
            self._webhooks.note(job, event)

    # ---------------------------------------------------------------- requests

    async def create(self, new: NewJob) -> JobView:
        """Create a job, if its pipeline compiles, and start it unless `start` is False."""
        pipeline = PipelineRecord(
            sql=new.sql,
            state_url=new.state_url or self._environment.state_url,
            functions=new.functions,
            settings=new.settings,
        )
        definition, graph = await self._compiled(new.name, pipeline)
        now = self._clock.now()
        status = JobStatus(changed_at=now)
        if not new.start:
            status = replace(status, state=StateName.STOPPED, cause="created, not started")
        record = JobRecord(
            name=new.name,
            pipeline=pipeline,
            desired=DesiredConfig(
                parallelism=definition.settings.pipeline.parallelism,
                wanted=Wanted.RUNNING if new.start else Wanted.STOPPED,
            ),
            status=status,
            created_at=now,
        )
        async with self._claimed_files(new.name, graph):
            await in_thread(self._metadata.create_job, record)
            keeper = self._add_keeper(record)
        keeper.begin()
        return _view(keeper)

    async def edit(
        self, name: JobName, sql: str, functions: str | None, settings: dict[str, str]
    ) -> JobView:
        """Replace the pipeline of a job. Operators that still fit retain their state. A running job
        switches to the new pipeline after a checkpoint. Raise if state would be lost; then the job
        does not change.
        """
        before = (await self._keeper(name)).record
        pipeline = PipelineRecord(sql, before.pipeline.state_url, functions, settings)
        definition, graph = await self._compiled(name, pipeline)
        sets_parallelism = "pipeline.parallelism" in settings
        parallelism = definition.settings.pipeline.parallelism
        if not definition.settings.checkpoint.accept_state_loss:
            await self._require_state_kept(
                name, graph, parallelism if sets_parallelism else before.desired.parallelism
            )

        def change(record: JobRecord) -> DesiredConfig:
            desired = record.desired
            if sets_parallelism:
                desired = rescaled(desired, parallelism)
            if desired.wanted is Wanted.STOPPED:
                return desired
            return restarted(desired, force=False, without_state=False)

        async with self._claimed_files(name, graph):
            return await self._change(name, change, pipeline)

    async def stop(self, name: JobName, mode: StopMode) -> JobView:
        return await self._change(name, lambda record: stopped(record.desired, mode))

    async def start(self, name: JobName) -> JobView:
        keeper = await self._keeper(name)
        return await self._change(name, lambda record: started(record.desired, keeper.status.state))

    async def restart(self, name: JobName, *, force: bool, without_state: bool) -> JobView:
        return await self._change(
            name,
            lambda record: restarted(record.desired, force=force, without_state=without_state),
        )

    async def rescale(self, name: JobName, parallelism: int) -> JobView:
        return await self._change(name, lambda record: rescaled(record.desired, parallelism))

    async def preview_rollback(self, name: JobName, to_epoch: Epoch) -> RollbackPreview:
        """Return the effects of a rollback to an epoch. Raise RollbackRefused if it is not
        possible.
        """
        keeper = await self._keeper(name)
        _, graph = await self._compiled(name, keeper.record.pipeline)
        backend = keeper.open_state()
        held = await self._read(name, held_by_sinks, backend, graph)
        return await self._read(name, preview_rollback, backend, graph, to_epoch, held)

    async def rollback(self, name: JobName, to_epoch: Epoch, *, accept_duplicates: bool) -> JobView:
        """Roll back to an earlier checkpoint. A running job resumes from there; a stopped one stays
        stopped.
        """
        preview = await self.preview_rollback(name, to_epoch)
        if not accept_duplicates:
            preview.require_no_duplicates()
        return await self._change(name, lambda record: rolled_back(record.desired, to_epoch))

    async def delete(self, name: JobName, *, with_state: bool) -> JobView:
        return await self._change(
            name, lambda record: deleted(record.desired, with_state=with_state)
        )

    async def _change(
        self,
        name: JobName,
        change: Callable[[JobRecord], DesiredConfig],
        pipeline: PipelineRecord | None = None,
    ) -> JobView:
        """Store the change, then pass it to the keeper, in the order of the requests."""
        keeper = await self._keeper(name)
        async with keeper.changing:
            record = await in_thread(
                self._metadata.change_desired, name, change, self._clock.now(), pipeline
            )
            keeper = self._keepers.get(name, keeper)
            keeper.set_desired(record)
            return _view(keeper)

    async def _compiled(
        self, name: JobName, pipeline: PipelineRecord
    ) -> tuple[JobDefinition, Graph]:
        """Compile a pipeline. Raise if it is invalid."""
        definition = self._environment.define(name, pipeline)
        return definition, await in_thread(definition.compile, pipeline.sql)

    @contextlib.asynccontextmanager
    async def _claimed_files(self, name: JobName, graph: Graph) -> AsyncIterator[None]:
        """Raise if a pipeline writes a file that another job writes. Its own files are claimed
        while it is being stored, so that one of two concurrent requests is refused.
        """
        written = files_written(graph)
        if written:
            for each in [each for each in self._keepers.values() if each.name not in self._files]:
                found: tuple[Place, ...] = ()
                # A pipeline that no longer compiles writes nothing.
                with contextlib.suppress(UserError):
                    _, other = await self._compiled(each.name, each.record.pipeline)
                    found = files_written(other)
                self._files.setdefault(each.name, found)
        # No await between here and the claim.
        others = {job: places for job, places in self._files.items() if job != name}
        require_not_taken(written, others)
        before = self._files.get(name)
        self._files[name] = written
        try:
            yield
        except BaseException:
            self._files.pop(name)
            if before is not None:
                self._files[name] = before
            raise

    async def _require_state_kept(self, name: JobName, edited: Graph, parallelism: int) -> None:
        """Raise if an edit would lose state."""
        keeper = await self._keeper(name)
        running = None
        if not keeper.is_inactive:
            # A pipeline that no longer compiles does not run either.
            with contextlib.suppress(UserError):
                _, running = await self._compiled(name, keeper.record.pipeline)
        await self._read(
            name, require_state_kept, keeper.open_state(), edited, running, parallelism
        )

    async def _read(
        self, name: JobName, read: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Read checkpoints for a request. Raise StorageError if storage hangs, because a client
        waits for the response.
        """
        try:
            async with asyncio.timeout(_READ_WITHIN.total_seconds()):
                return await in_thread(read, *args, **kwargs)
        except TimeoutError as error:
            raise StorageError(
                f"the checkpoints of '{name}' could not be read within "
                f"{_READ_WITHIN.total_seconds():.0f} s; nothing was changed",
                hint="Check the storage and try again.",
            ) from error

    async def _keeper(self, name: JobName) -> JobKeeper:
        keeper = self._keepers.get(name)
        if keeper is None:
            known = ", ".join(sorted(self._keepers)[:12])
            raise NoSuchJob(
                f"job '{name}' does not exist", hint=f"Use one of: {known}." if known else ""
            )
        return keeper

    # ---------------------------------------------------------------- views

    async def jobs(self) -> list[JobView]:
        """Return all jobs, by name."""
        return [_view(keeper) for _, keeper in sorted(self._keepers.items())]

    async def job(self, name: JobName) -> JobView:
        return _view(await self._keeper(name))

    async def events(self, name: JobName, after: int, limit: int) -> list[StoredEvent]:
        await self._keeper(name)
        return await in_thread(self._metadata.events, name, after=after, limit=limit)

    async def incidents(self, name: JobName | None, limit: int) -> list[dict[str, JsonValue]]:
        if name is not None:
            await self._keeper(name)
        return await in_thread(self._metadata.incidents, name, limit)

    async def workers(self) -> list[WorkerView]:
        """Return all worker processes, of jobs and standbys."""
        owners = {
            keeper.handle.worker: (keeper.name, keeper.worker_state)
            for keeper in self._keepers.values()
            if keeper.handle is not None
        }
        views = []
        for handle in self._pool.handles:
            job, state = owners.get(handle.worker, (None, "standby" if handle.ready else "warming"))
            views.append(
                WorkerView(
                    worker=handle.record,
                    job=job,
                    state=state,
                    phase=handle.phase,
                    started_at=handle.started_at,
                    last_heard_at=handle.last_heard_at,
                    log_file=handle.log_file,
                    executors=handle.executors,
                )
            )
        return views

    async def log_files(self, name: JobName) -> list[Path]:
        """Return the log files of the job's workers, the newest last."""
        await self._keeper(name)
        return await in_thread(self._environment.log_files, name)

    async def metrics(self) -> bytes:
        """Return the metrics of all jobs in the Prometheus text format."""
        samples = [keeper.sample() for keeper in self._keepers.values()]
        return exposition(samples, self._clock.now())


def _view(keeper: JobKeeper) -> JobView:
    return JobView(keeper.current(), keeper.progress())
