"""The controller of a service: many jobs, one supervisor each.

A request is checked, stored, and answered; the job's keeper converges to it. Jobs share nothing that
one of them could hold up: each call that may hang has a thread of its own.
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
from resurgence.control.jobs.rollback_preview import RollbackPreview, preview_rollback
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import MetadataStore, NoSuchJob, StoredEvent
from resurgence.control.telemetry.event_recorder import EventRecorder
from resurgence.control.telemetry.events import Event
from resurgence.control.telemetry.prometheus import exposition
from resurgence.control.telemetry.webhooks import Webhooks
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.errors import StorageError, UserError
from resurgence.graph.model import Graph
from resurgence.ids import Epoch, JobName

_CONTROL_PORT = "control_port"
_SERVICE_ID = "service_id"
_SPREAD = timedelta(milliseconds=300)
"""Between the starts of jobs when a controller comes up."""
_LAST_EVENTS = timedelta(seconds=5)
_READ_WITHIN = timedelta(seconds=15)
"""Longest that a request waits for the object store; less than clients wait for an answer."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

log = logging.getLogger("resurgence.control")


@dataclass(frozen=True)
class NewJob:
    """What `create` takes."""

    name: JobName
    sql: str
    functions: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    state_url: str | None = None
    """None: the service's own."""
    start: bool = True


@dataclass(frozen=True)
class JobView:
    """A job as people see it: the record, and what its supervisor knows at this moment."""

    record: JobRecord
    progress: dict[str, JsonValue]


@dataclass(frozen=True)
class WorkerView:
    """A worker process, active or standing by."""

    worker: WorkerRecord
    job: JobName | None
    state: str
    phase: str
    started_at: datetime
    last_heard_at: datetime | None
    log_file: Path


class Controller:
    """What the API calls. Every method answers at once; none waits for a job."""

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
        self._beside: list[asyncio.Task[None]] = []
        self._hurried = False
        self._service_id = ""
        self._files: dict[JobName, tuple[Place, ...]] = {}
        """What the `single_file` sinks of jobs write, of those jobs that were looked at."""

    # ---------------------------------------------------------------- life

    async def require_writable(self) -> None:
        """Fail with a `StorageError` while requests cannot be stored."""
        await in_thread(self._metadata.require_writable)

    async def open(self) -> None:
        """Take up all jobs on record. Workers of before are expected before anyone can knock."""
        self._service_id = await in_thread(self._stored_id)
        records = await in_thread(self._metadata.jobs)
        left = 0
        for record in records:
            keeper = self._keep(record)
            if not keeper.adopt():
                keeper.delay = _SPREAD * left
                left += 1
        port = await in_thread(self._metadata.value, _CONTROL_PORT)
        self._pool.port = int(port or 0)
        await self._pool.open()
        assert self._pool.address is not None
        await in_thread(self._metadata.put_value, _CONTROL_PORT, str(self._pool.address[1]))
        self._beside.append(asyncio.create_task(self._recorder.run()))
        if self._webhooks is not None:
            self._webhooks.start()
        for keeper in self._keepers.values():
            keeper.begin()

    async def close(self, mode: StopMode = StopMode.CHECKPOINT) -> None:
        """Stop every job's worker at a checkpoint. What is wanted of the jobs stays as it is, so
        that the next controller goes on with them.
        """
        if self._hurried:
            mode = StopMode.FORCE
        await asyncio.gather(*(each.close(mode) for each in self._keepers.values()))
        await self._pool.close()
        await self._recorder.flush(_LAST_EVENTS)
        if self._webhooks is not None:
            await self._webhooks.close(_LAST_EVENTS)
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def hurry(self) -> None:
        """Do not wait for checkpoints any longer."""
        self._hurried = True
        for keeper in self._keepers.values():
            keeper.hurry()

    def _stored_id(self) -> str:
        """What all processes that ever serve this database are known by."""
        known = self._metadata.value(_SERVICE_ID)
        if known is None:
            known = uuid.uuid4().hex
            self._metadata.put_value(_SERVICE_ID, known)
        return known

    def _keep(self, record: JobRecord) -> JobKeeper:
        keeper = JobKeeper(
            record,
            self._metadata,
            self._pool,
            self._environment,
            self._clock,
            self._note,
            self._service_id,
        )
        keeper.on_gone = self._gone
        keeper.forget_events = self._recorder.forget
        self._keepers[record.name] = keeper
        return keeper

    def _gone(self, keeper: JobKeeper) -> None:
        # The name may have been given to another job already.
        if self._keepers.get(keeper.name) is keeper:
            del self._keepers[keeper.name]
            self._files.pop(keeper.name, None)

    def _note(self, job: JobName, event: Event) -> None:
        self._recorder.note(job, event)
        if self._webhooks is not None:
            self._webhooks.note(job, event)

    # ---------------------------------------------------------------- requests

    async def create(self, new: NewJob) -> JobView:
        """Keep a new job, if its pipeline compiles; it starts at once."""
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
            keeper = self._keep(record)
        keeper.begin()
        return _view(keeper)

    async def edit(
        self, name: JobName, sql: str, functions: str | None, settings: dict[str, str]
    ) -> JobView:
        """Another pipeline for a job: what still fits keeps its state. A job that runs goes on with
        it after a checkpoint. Refused, with no effect on the job, if state would be lost.
        """
        before = (await self._keeper(name)).record
        pipeline = PipelineRecord(sql, before.pipeline.state_url, functions, settings)
        definition, graph = await self._compiled(name, pipeline)
        given = "pipeline.parallelism" in settings
        parallelism = definition.settings.pipeline.parallelism
        if not definition.settings.checkpoint.accept_state_loss:
            await self._require_state_kept(
                name, graph, parallelism if given else before.desired.parallelism
            )

        def change(record: JobRecord) -> DesiredConfig:
            desired = record.desired
            if given:
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
        """What a rollback to an epoch would do. Raises RollbackRefused if the job cannot go back
        there.
        """
        keeper = await self._keeper(name)
        _, graph = await self._compiled(name, keeper.record.pipeline)
        return await self._read(name, preview_rollback, keeper.open_state(), graph, to_epoch)

    async def rollback(self, name: JobName, to_epoch: Epoch, *, accept_duplicates: bool) -> JobView:
        """Go back to an earlier checkpoint. A job that runs goes on from there; one that is stopped
        stays so.
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
        """Store, then tell the keeper, in the order of the requests."""
        keeper = await self._keeper(name)
        async with keeper.changing:
            record = await in_thread(
                self._metadata.change_desired, name, change, self._clock.now(), pipeline
            )
            keeper = self._keepers.get(name, keeper)
            keeper.want(record)
            return _view(keeper)

    async def _compiled(
        self, name: JobName, pipeline: PipelineRecord
    ) -> tuple[JobDefinition, Graph]:
        """Refuse what cannot run."""
        definition = self._environment.define(name, pipeline)
        return definition, await in_thread(definition.compile, pipeline.sql)

    @contextlib.asynccontextmanager
    async def _claimed_files(self, name: JobName, graph: Graph) -> AsyncIterator[None]:
        """Refuse a pipeline that writes a file which another job writes. While it is stored, its
        own files count as taken: of two requests at the same time, one is refused.
        """
        written = files_written(graph)
        if written:
            for each in [each for each in self._keepers.values() if each.name not in self._files]:
                found: tuple[Place, ...] = ()
                # A pipeline that does not compile any more writes nothing.
                with contextlib.suppress(UserError):
                    _, other = await self._compiled(each.name, each.record.pipeline)
                    found = files_written(other)
                self._files.setdefault(each.name, found)
        # From here to the claim nothing is waited for.
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
        """Refuse an edit that would lose state; the job is not touched."""
        keeper = await self._keeper(name)
        running = None
        if not keeper.is_at_rest:
            # A pipeline that does not compile any more does not run either.
            with contextlib.suppress(UserError):
                _, running = await self._compiled(name, keeper.record.pipeline)
        await self._read(
            name, require_state_kept, keeper.open_state(), edited, running, parallelism
        )

    async def _read(
        self, name: JobName, read: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Read checkpoints for a request. A client waits for the answer, so storage that hangs is
        an error.
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
            raise NoSuchJob(f"job '{name}' does not exist", hint=f"known: {known}" if known else "")
        return keeper

    # ---------------------------------------------------------------- views

    async def jobs(self) -> list[JobView]:
        """All jobs, by name."""
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
        """All worker processes, of jobs and standing by."""
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
                )
            )
        return views

    async def log_files(self, name: JobName) -> list[Path]:
        """The logs of the job's workers, the newest last."""
        await self._keeper(name)
        return await in_thread(self._environment.log_files, name)

    async def metrics(self) -> bytes:
        """All jobs, for Prometheus."""
        samples = [keeper.sample() for keeper in self._keepers.values()]
        return exposition(samples, self._clock.now())


def _view(keeper: JobKeeper) -> JobView:
    return JobView(keeper.current(), keeper.progress())
