"""The controller of a service: many jobs, one supervisor each.

A request is validated, stored, and answered; the job's keeper converges to it. No job can block
another: each call that may hang has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from pydantic import JsonValue

from resurgence.clock import Clock
from resurgence.connectors.path_overlap import Place, files_written, require_not_taken
from resurgence.control.background import Lane, in_thread
from resurgence.control.definitions.edit_check import fates_of_edit, require_state_kept
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.definitions.job_environment import JobEnvironment
from resurgence.control.definitions.previews import preview_text, previewed_rows
from resurgence.control.fleet.member import FleetMember
from resurgence.control.jobs.job_keeper import JobKeeper, open_state
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
    should_start,
    started,
    stopped,
)
from resurgence.control.jobs.owned_jobs import OwnedJobs
from resurgence.control.jobs.rollback_preview import (
    RollbackPreview,
    held_by_sinks,
    preview_rollback,
)
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import MetadataStore, NoSuchJob, StoredEvent
from resurgence.control.telemetry.event_recorder import EventRecorder
from resurgence.control.telemetry.event_watch import EventWatch
from resurgence.control.telemetry.events import Event
from resurgence.control.telemetry.prometheus import exposition
from resurgence.control.telemetry.webhooks import Webhooks
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.engine.preview import PreviewedTable
from resurgence.engine.spark.executors import Executor
from resurgence.errors import StorageError, UserError
from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.ids import ControllerId, Epoch, JobName
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.dead_letters import (
    Correction,
    LetterFilter,
    Letters,
    ReplayOutcome,
    dead_letters,
    request_replay,
)
from resurgence.state.inspection.edits import OperatorFate
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind
from resurgence.storage.object_store import ObjectStore

_CONTROL_PORT = "control_port"
_PROBED = "probed-by-controllers"
"""An object that need not exist."""
_EVENT_READERS = 3
"""Requests that read events at the same time. Hundreds of clients may follow one job."""
_LAST_EVENTS = timedelta(seconds=5)
_READ_WITHIN = timedelta(seconds=15)
"""How long a request waits for the object store; less than the timeout of clients."""

_NO_JOB = JobName("-")
"""The name of a pipeline that is not of a job."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        url: str = "",
        lease: timedelta = timedelta(seconds=15),
    ) -> None:
        """`url` is the address of the API, for other controllers on the same database; `lease` is
        how long they wait before they take over the jobs of this one.
        """
        self._metadata = metadata
        self._pool = pool
        self._environment = environment
        self._clock = clock
        self._webhooks = webhooks
        self._url = url
        self._recorder = EventRecorder(metadata)
        self._watch = EventWatch(metadata)
        self._lane = Lane(_EVENT_READERS)
        self._previews = Lane(1)
        self._owned = OwnedJobs(metadata, pool, environment, clock, self._recorder, self._note)
        self._owned.on_removed = self._forget_files
        self._lease = lease
        self._fleet: FleetMember | None = None
        self._background_tasks: list[asyncio.Task[None]] = []
        self._hurried = False
        self._files: dict[JobName, tuple[PipelineRecord | None, tuple[Place, ...]]] = {}
        """The files that `single_file` sinks write, by job; only for jobs already checked."""

    @property
    def can_only_stop(self) -> bool:
        """Whether all requests but to stop a job are refused."""
        return False

    # ---------------------------------------------------------------- life

    async def require_writable(self) -> None:
        """Raise StorageError if requests cannot be stored."""
        await in_thread(self._metadata.require_writable)

    async def open(self) -> None:
        """Resume the stored jobs: all of them, or a share if the database has other controllers."""
        self._owned.service_id = await in_thread(self._metadata.service_id)
        if self._metadata.can_be_shared:
            await self._open_shared()
        else:
            await self._open_alone()
        self._background_tasks.append(asyncio.create_task(self._recorder.run()))
        if self._webhooks is not None:
            self._webhooks.start()

    async def _open_alone(self) -> None:
        """Resume all jobs. Adopted workers are registered before the channel listens."""
        self._owned.resume(await in_thread(self._metadata.jobs))
        port = await in_thread(self._metadata.value, _CONTROL_PORT)
        self._pool.port = int(port or 0)
        await self._pool.open()
        assert self._pool.address is not None
        await in_thread(self._metadata.put_value, _CONTROL_PORT, str(self._pool.address[1]))
        self._owned.begin()

    async def _open_shared(self) -> None:
        """Join the controllers of this database. Workers find their owner by its lease in storage,
        so the control port does not matter.
        """
        await self._pool.open()
        process = owner_here(OwnerKind.SERVICE, self._owned.service_id, self._clock.now())
        # The others look once per renewal, so the lease ends earlier by that much.
        owners = self._metadata.owners(self._lease * 5 / 6)
        self._fleet = FleetMember(
            self._metadata, owners, self._owned, process, self._url, self._ask_storage
        )
        self._fleet.joined = self._joined
        self._owned.require_owned = self._fleet.require_owned
        await self._fleet.open()

    def _ask_storage(self) -> None:
        """Raise StorageError if the storage of the service does not answer."""
        ObjectStore(self._environment.state_url).size(_PROBED)

    def _joined(self, controller: ControllerId) -> None:
        self._owned.owner = self._recorder.owner = controller

    async def close(self, mode: StopMode = StopMode.CHECKPOINT) -> None:
        """Stop every job's worker at a checkpoint. The desired state of the jobs does not change,
        so that another controller resumes them.
        """
        if self._fleet is not None:
            await self._fleet.close()
        await self._owned.close(StopMode.FORCE if self._hurried else mode)
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
        self._owned.hurry()

    def _forget_files(self, name: JobName) -> None:
        self._files.pop(name, None)

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
        async with self._claimed_files(new.name, graph, pipeline):
            await in_thread(self._metadata.create_job, record)
            if self._fleet is None:
                self._owned.add(record).begin()
        return await self.job(new.name)

    async def edit(
        self, name: JobName, sql: str, functions: str | None, settings: dict[str, str]
    ) -> JobView:
        """Replace the pipeline of a job. Operators that still fit retain their state. A running job
        switches to the new pipeline after a checkpoint. Raise if state would be lost; then the job
        does not change.
        """
        before = (await self.job(name)).record
        pipeline = PipelineRecord(sql, before.pipeline.state_url, functions, settings)
        definition, graph = await self._compiled(name, pipeline)
        sets_parallelism = "pipeline.parallelism" in settings
        parallelism = definition.settings.pipeline.parallelism
        if not definition.settings.checkpoint.accept_state_loss:
            await self._require_state_kept(
                before, graph, parallelism if sets_parallelism else before.desired.parallelism
            )

        def change(record: JobRecord) -> DesiredConfig:
            desired = record.desired
            if sets_parallelism:
                desired = rescaled(desired, parallelism)
            if desired.wanted is Wanted.STOPPED:
                return desired
            return restarted(desired, force=False, without_state=False)

        async with self._claimed_files(name, graph, pipeline):
            return await self._change(name, change, pipeline)

    async def preview_edit(
        self, name: JobName, sql: str, functions: str | None, settings: dict[str, str]
    ) -> tuple[Epoch, tuple[OperatorFate, ...]]:
        """Return what an edit would do with the state of every operator, and the epoch of that
        state. Nothing is changed.
        """
        before = (await self.job(name)).record
        pipeline = PipelineRecord(sql, before.pipeline.state_url, functions, settings)
        definition, graph = await self._compiled(name, pipeline)
        parallelism = before.desired.parallelism
        if "pipeline.parallelism" in settings:
            parallelism = definition.settings.pipeline.parallelism
        running = await self._running_graph(before)
        return await self._read(
            name, fates_of_edit, open_state(before), graph, running, parallelism
        )

    async def stop(self, name: JobName, mode: StopMode) -> JobView:
        return await self._change(name, lambda record: stopped(record.desired, mode))

    async def start(self, name: JobName) -> JobView:
        keeper = self._owned.get(name)

        def change(record: JobRecord) -> DesiredConfig:
            # The status of a job that runs here may not be stored yet.
            status = keeper.status if keeper else record.status
            return started(record.desired, status.state)

        return await self._change(name, change)

    async def restart(self, name: JobName, *, force: bool, without_state: bool) -> JobView:
        return await self._change(
            name,
            lambda record: restarted(record.desired, force=force, without_state=without_state),
        )

    async def rescale(self, name: JobName, parallelism: int) -> JobView:
        return await self._change(name, lambda record: rescaled(record.desired, parallelism))

    async def sinks(self, name: JobName) -> tuple[SinkSpec, ...]:
        """Return the sinks of a job's pipeline."""
        record = (await self.job(name)).record
        _, graph = await self._compiled(name, record.pipeline)
        return graph.sinks()

    async def graph(self, name: JobName) -> Graph:
        """Return the compiled pipeline of a job."""
        _, graph = await self._compiled(name, (await self.job(name)).record.pipeline)
        return graph

    async def compiled_text(
        self, sql: str, functions: str | None, settings: dict[str, str]
    ) -> Graph:
        """Return a pipeline compiled, which need not be of a job. Raise if it is invalid."""
        _, graph = await self._compiled_aside(sql, functions, settings)
        return graph

    async def preview(
        self, sql: str, functions: str | None, settings: dict[str, str], query: str
    ) -> PreviewedTable:
        """Return the first rows of a query over the tables of a pipeline, computed over a sample of
        its real sources. Runs the user's code. One preview runs at a time.
        """
        text = await in_thread(preview_text, sql, query)
        definition, graph = await self._compiled_aside(text, functions, settings)
        return await self._previews.call(previewed_rows, definition, graph)

    async def _compiled_aside(
        self, sql: str, functions: str | None, settings: dict[str, str]
    ) -> tuple[JobDefinition, Graph]:
        await in_thread(self._environment.tidy_functions, _NO_JOB)
        pipeline = PipelineRecord(sql, self._environment.state_url, functions, settings)
        return await self._compiled(_NO_JOB, pipeline)

    async def read_state(
        self,
        name: JobName,
        read: Callable[Concatenate[StateBackend, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Return what `read` finds in the stored state of a job. Raise StorageError if storage
        hangs.
        """
        backend = open_state((await self.job(name)).record)
        return await self._read(name, read, backend, *args, **kwargs)

    async def preview_rollback(self, name: JobName, to_epoch: Epoch) -> RollbackPreview:
        """Return the effects of a rollback to an epoch. Raise RollbackRefused if it is not
        possible.
        """
        record = (await self.job(name)).record
        _, graph = await self._compiled(name, record.pipeline)
        backend = open_state(record)
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

    async def dead_letters(
        self,
        name: JobName,
        wanted: LetterFilter,
        newest: int | None = None,
    ) -> Letters:
        """Return the dead letters of a job that are wanted, or the newest of them."""
        backend = open_state((await self.job(name)).record)
        return await self._read(name, dead_letters, backend, wanted, newest)

    async def replay(
        self,
        name: JobName,
        letters: pa.Table,
        corrected: Mapping[str, Correction],
        *,
        again: bool,
    ) -> ReplayOutcome:
        """Request that dead letters are read again. The job finds the request in its storage."""
        backend = open_state((await self.job(name)).record)
        now = self._clock.now()
        try:
            async with asyncio.timeout(_READ_WITHIN.total_seconds()):
                return await in_thread(
                    request_replay, backend, letters, now, corrected=corrected, again=again
                )
        except TimeoutError as error:
            raise StorageError(
                f"the replay of dead letters of '{name}' could not be stored within "
                f"{_READ_WITHIN.total_seconds():.0f} s; it may have been requested",
                hint="Run the command again; what was requested is skipped.",
            ) from error

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
        """Store the change, then pass it to the keeper, in the order of the requests. The owner of
        a job that does not run here is notified by the database.
        """
        keeper = self._owned.get(name)
        if keeper is None and self._fleet is None:
            raise self._no_such_job(name, [each.name for each in self._owned])
        async with keeper.changing if keeper else contextlib.nullcontext():
            try:
                record = await in_thread(
                    self._metadata.change_desired, name, change, self._clock.now(), pipeline
                )
            except NoSuchJob:
                raise self._no_such_job(name, await self._names()) from None
            keeper = self._owned.get(name) or keeper
            if keeper is None:
                return await self._stored_view(record)
            keeper.set_desired(record)
            return _view(keeper)

    async def _compiled(
        self, name: JobName, pipeline: PipelineRecord
    ) -> tuple[JobDefinition, Graph]:
        """Compile a pipeline. Raise if it is invalid."""
        definition = self._environment.define(name, pipeline)
        return definition, await in_thread(definition.compile, pipeline.sql)

    @contextlib.asynccontextmanager
    async def _claimed_files(
        self, name: JobName, graph: Graph, pipeline: PipelineRecord
    ) -> AsyncIterator[None]:
        """Raise if a pipeline writes a file that another job writes. Its own files are claimed
        while it is being stored, so that one of two concurrent requests is refused, here or at
        another controller.
        """
        written = files_written(graph)
        if written and self._fleet is not None:
            # Compiles what is not known yet, before others have to wait.
            await self._load_files()
        async with self._files_turn() if written else contextlib.nullcontext():
            if written:
                await self._load_files()
            # No await between here and the claim.
            others = {job: places for job, (_, places) in self._files.items() if job != name}
            require_not_taken(written, others)
            before = self._files.get(name)
            self._files[name] = (pipeline, written)
            try:
                yield
            except BaseException:
                self._files.pop(name)
                if before is not None:
                    self._files[name] = before
                raise

    @contextlib.asynccontextmanager
    async def _files_turn(self) -> AsyncIterator[None]:
        """Exclude other controllers from storing a pipeline that writes files."""
        if self._fleet is None:
            yield
            return
        turn = self._metadata.files_turn()
        await in_thread(turn.__enter__)
        try:
            yield
        finally:
            await in_thread(turn.__exit__, None, None, None)

    async def _load_files(self) -> None:
        """Find the files that all jobs write."""
        records = await self._records()
        if self._fleet is not None:
            # What another controller deleted is free again.
            names = {each.name for each in records}
            for name in [each for each in self._files if each not in names]:
                del self._files[name]
        for each in records:
            known = self._files.get(each.name)
            if known is not None and (self._fleet is None or known[0] == each.pipeline):
                continue
            found: tuple[Place, ...] = ()
            # A pipeline that no longer compiles writes nothing.
            with contextlib.suppress(UserError):
                _, other = await self._compiled(each.name, each.pipeline)
                found = files_written(other)
            if self._fleet is None:
                self._files.setdefault(each.name, (each.pipeline, found))
            else:
                self._files[each.name] = (each.pipeline, found)

    async def _require_state_kept(self, before: JobRecord, edited: Graph, parallelism: int) -> None:
        """Raise if an edit would lose state."""
        running = await self._running_graph(before)
        await self._read(
            before.name, require_state_kept, open_state(before), edited, running, parallelism
        )

    async def _running_graph(self, record: JobRecord) -> Graph | None:
        """Return the pipeline that a job runs; None if it is stopped."""
        running = None
        if should_start(record.desired, record.status):
            # A pipeline that no longer compiles does not run either.
            with contextlib.suppress(UserError):
                _, running = await self._compiled(record.name, record.pipeline)
        return running

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

    # ---------------------------------------------------------------- views

    async def jobs(self) -> list[JobView]:
        """Return all jobs, by name."""
        if self._fleet is None:
            return [_view(each) for each in sorted(self._owned, key=lambda each: each.name)]
        records = await in_thread(self._metadata.jobs)
        progress = await in_thread(self._metadata.progress)
        views = []
        for record in records:
            keeper = self._owned.get(record.name)
            stored = JobView(record, progress.get(record.name, {}))
            views.append(_view(keeper) if keeper else stored)
        return views

    async def job(self, name: JobName) -> JobView:
        keeper = self._owned.get(name)
        if keeper is not None:
            return _view(keeper)
        record = await in_thread(self._metadata.job, name) if self._fleet is not None else None
        if record is None:
            raise self._no_such_job(name, await self._names())
        return await self._stored_view(record)

    async def _stored_view(self, record: JobRecord) -> JobView:
        """Return a job of another controller, as that one has stored it."""
        progress = await in_thread(self._metadata.progress, record.name)
        return JobView(record, progress.get(record.name, {}))

    async def _records(self) -> list[JobRecord]:
        if self._fleet is None:
            return [each.record for each in self._owned]
        return await in_thread(self._metadata.jobs)

    async def _names(self) -> list[JobName]:
        return sorted(each.name for each in await self._records())

    def _no_such_job(self, name: JobName, names: list[JobName]) -> NoSuchJob:
        known = ", ".join(sorted(names)[:12])
        return NoSuchJob(
            f"job '{name}' does not exist", hint=f"Use one of: {known}." if known else ""
        )

    async def events(self, name: JobName, after: int, limit: int) -> list[StoredEvent]:
        await self._require_job(name)
        return await self._lane.call(self._metadata.events, name, after=after, limit=limit)

    async def newest_events(
        self,
        name: JobName | None,
        *,
        before: int = 0,
        limit: int = 100,
        kind: str = "",
        text: str = "",
    ) -> list[tuple[JobName, StoredEvent]]:
        """Return the newest events, newest first, of one job or of all: those with ids below
        `before`, if it is not 0, of a kind, and with a text in their facts.
        """
        if name is not None:
            await self._require_job(name)
        return await self._lane.call(
            self._metadata.newest_events, name, before=before, limit=limit, kind=kind, text=text
        )

    def following(self, name: JobName) -> AbstractContextManager[asyncio.Event]:
        """Return a context whose event is set whenever the job may have new events, or is gone."""
        return self._watch.following(name)

    async def incidents(self, name: JobName | None, limit: int) -> list[dict[str, JsonValue]]:
        if name is not None:
            await self._require_job(name)
        return await in_thread(self._metadata.incidents, name, limit)

    async def _require_job(self, name: JobName) -> None:
        if self._owned.get(name) is None:
            await self.job(name)

    def other_controllers(self) -> tuple[str, ...]:
        """Return the addresses of the other live controllers of the service."""
        if self._fleet is None:
            return ()
        return tuple(url for each, url in self._fleet.peers.items() if each != self._fleet.id)

    async def owner_elsewhere(self, name: JobName) -> str | None:
        """Return the address of the controller that runs a job; None if it is this one, or none."""
        if self._fleet is None or self._owned.get(name) is not None:
            return None
        owner = await in_thread(self._metadata.owners(self._lease).owner, name)
        if owner is None or owner == self._fleet.id:
            return None
        return self._fleet.peers.get(owner)

    @property
    def address(self) -> str:
        """The address of this controller, for the others of the service; empty if it is alone."""
        return self._url if self._fleet is not None else ""

    async def workers(self) -> list[WorkerView]:
        """Return the worker processes of this controller, of jobs and standbys."""
        owners = {
            keeper.handle.worker: (keeper.name, keeper.worker_state)
            for keeper in self._owned
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
        await self._require_job(name)
        return await in_thread(self._environment.log_files, name)

    async def metrics(self) -> bytes:
        """Return the metrics of the jobs that this controller runs, in the Prometheus text
        format.
        """
        samples = [keeper.sample() for keeper in self._owned]
        return exposition(samples, self._clock.now())


def _view(keeper: JobKeeper) -> JobView:
    return JobView(keeper.current(), keeper.progress())
