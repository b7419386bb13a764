"""A service with a simulated controller: the API, the gate and the HTTP server are real, jobs are
values in memory. The desired state changes by the real functions of `job_record`.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from resurgence.api.access.api_keys import new_key
from resurgence.api.access.guard import Guard
from resurgence.cli.commands.serve import BuildController, serve_until
from resurgence.clock import SystemClock, instant_text
from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.control.controller import Controller, JobView, NewJob, WorkerView
from resurgence.control.jobs import job_record
from resurgence.control.jobs.job_record import (
    DesiredConfig,
    JobRecord,
    JobStatus,
    PipelineRecord,
    StopMode,
    Wanted,
    WorkerRecord,
)
from resurgence.control.jobs.rollback_preview import (
    RollbackPreview,
    SinkOutcome,
    SourcePosition,
)
from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.control.store.metadata import ApiKey, JobExists, KeyRole, NoSuchJob, StoredEvent
from resurgence.control.telemetry.event_watch import EventWatch
from resurgence.engine.spark.executors import Executor
from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.ids import Epoch, Generation, JobName, OperatorId, WorkerId
from resurgence.sql import compile_pipeline

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SQL = """
CREATE TABLE rides (at TIMESTAMP NOT NULL, driver BIGINT, WATERMARK FOR at AS at)
WITH (connector = 'single_file', path = 'rides.json', format = 'json', type = 'source');
CREATE TABLE hourly (start TIMESTAMP, n BIGINT) WITH (connector = 'blackhole', type = 'sink');
INSERT INTO hourly SELECT window.start, n FROM (
  SELECT tumble(INTERVAL '1 hour') AS window, count(*) AS n FROM rides GROUP BY window);
"""


class SimulatedController(Controller):
    """Jobs in memory. Each look at a job brings it a step nearer to what is wanted."""

    def __init__(self, folder: Path) -> None:
        self.begin_anew(folder)

    def begin_anew(self, folder: Path) -> None:
        self.folder = folder
        self._clock = SystemClock()
        self._watch = EventWatch(self)
        self.records: dict[JobName, JobRecord] = {}
        self.stored: dict[JobName, list[StoredEvent]] = {}
        self.reported: list[dict[str, JsonValue]] = []
        self.logs: dict[JobName, list[Path]] = {}
        self.executors: tuple[Executor, ...] = ()
        self.progress: dict[str, JsonValue] = {}
        self.failing: Exception | None = None
        """Raised by whatever is asked next."""
        self.compiled: list[str | None] = []
        """The functions of the texts that were compiled."""
        self.reads = 0
        """Looks at a job."""
        self.sinks_retract = True
        self.held: Epoch | None = None
        self.is_stuck = False
        """Jobs stay as they are."""
        self.others: tuple[str, ...] = ()
        """The addresses of other controllers, the first of which runs all jobs."""

    def other_controllers(self) -> tuple[str, ...]:
        return self.others

    async def owner_elsewhere(self, name: JobName) -> str | None:
        return self.others[0] if self.others else None

    @property
    def address(self) -> str:
        return "http://here" if self.others else ""

    async def require_writable(self) -> None:
        self._fail()

    async def create(self, new: NewJob) -> JobView:
        self._fail()
        parallelism = _checked(new.sql, new.settings)
        if new.name in self.records:
            raise JobExists(f"there is a job '{new.name}' already", hint="choose another name")
        self.records[new.name] = JobRecord(
            name=new.name,
            pipeline=PipelineRecord(
                new.sql, new.state_url or "file:///state", new.functions, new.settings
            ),
            desired=DesiredConfig(parallelism, Wanted.RUNNING if new.start else Wanted.STOPPED),
            status=JobStatus(
                state=StateName.CREATED if new.start else StateName.STOPPED, changed_at=NOW
            ),
            created_at=NOW,
        )
        self.happened(new.name, "state", **{"from": "none", "to": "Created", "reason": "created"})
        return self._view(new.name)

    async def jobs(self) -> list[JobView]:
        self._fail()
        return [self._view(name) for name in self.records]

    async def job(self, name: JobName) -> JobView:
        self.reads += 1
        self._step(name)
        return self._view(name)

    async def edit(
        self, name: JobName, sql: str, functions: str | None, settings: dict[str, str]
    ) -> JobView:
        record = self._record(name)
        parallelism = _checked(sql, settings)
        self.records[name] = replace(
            record, pipeline=PipelineRecord(sql, record.pipeline.state_url, functions, settings)
        )
        return self._want(name, lambda desired: job_record.rescaled(desired, parallelism))

    async def stop(self, name: JobName, mode: StopMode) -> JobView:
        return self._want(name, lambda desired: job_record.stopped(desired, mode))

    async def start(self, name: JobName) -> JobView:
        state = self._record(name).status.state
        return self._want(name, lambda desired: job_record.started(desired, state))

    async def restart(self, name: JobName, *, force: bool, without_state: bool) -> JobView:
        return self._want(
            name,
            lambda desired: job_record.restarted(desired, force=force, without_state=without_state),
        )

    async def rescale(self, name: JobName, parallelism: int) -> JobView:
        return self._want(name, lambda desired: job_record.rescaled(desired, parallelism))

    async def sinks(self, name: JobName) -> tuple[SinkSpec, ...]:
        return compile_pipeline(self._record(name).pipeline.sql, CONNECTORS, {}).sinks()

    async def preview_rollback(self, name: JobName, to_epoch: Epoch) -> RollbackPreview:
        self._record(name)
        return RollbackPreview(
            to_epoch,
            (Epoch(to_epoch + 1), Epoch(7)),
            self.held,
            (SinkOutcome("hourly", 1200, self.sinks_retract),),
            (SourcePosition(OperatorId("source-rides"), {"line": 40}, 5000),),
        )

    async def rollback(self, name: JobName, to_epoch: Epoch, *, accept_duplicates: bool) -> JobView:
        preview = await self.preview_rollback(name, to_epoch)
        if not accept_duplicates:
            preview.require_no_duplicates()
        return self._want(name, lambda desired: job_record.rolled_back(desired, to_epoch))

    async def delete(self, name: JobName, *, with_state: bool) -> JobView:
        return self._want(name, lambda desired: job_record.deleted(desired, with_state=with_state))

    async def events(self, name: JobName, after: int, limit: int) -> list[StoredEvent]:
        self._record(name)
        return [each for each in self.stored.get(name, []) if each.id > after][:limit]

    async def newest_events(
        self,
        name: JobName | None,
        *,
        before: int = 0,
        limit: int = 100,
        kind: str = "",
        text: str = "",
    ) -> list[tuple[JobName, StoredEvent]]:
        found = [
            (job, each)
            for job, events in self.stored.items()
            for each in events
            if name in (None, job) and kind in ("", each.event["event"])
        ]
        return found[::-1][:limit]

    async def graph(self, name: JobName) -> Graph:
        return compile_pipeline(self._record(name).pipeline.sql, CONNECTORS, {})

    async def compiled_text(
        self, sql: str, functions: str | None, settings: dict[str, str]
    ) -> Graph:
        self.compiled.append(functions)
        return compile_pipeline(sql, CONNECTORS, {})

    def last_event_id(self) -> int:
        return 0

    def news(self, jobs: Collection[JobName], after: int) -> tuple[int, set[JobName]]:
        return after, set(jobs)

    async def incidents(self, name: JobName | None, limit: int) -> list[dict[str, JsonValue]]:
        if name is not None:
            self._record(name)
        return [each for each in self.reported if name in (None, each["job"])][-limit:]

    async def workers(self) -> list[WorkerView]:
        self._fail()
        return [
            WorkerView(
                worker=record.status.worker,
                job=name,
                state="running",
                phase="execute",
                started_at=NOW,
                last_heard_at=None,
                log_file=self.folder / "w1.log",
                executors=self.executors,
            )
            for name, record in self.records.items()
            if record.status.worker is not None
        ]

    async def log_files(self, name: JobName) -> list[Path]:
        self._record(name)
        return self.logs.get(name, [])

    async def metrics(self) -> bytes:
        self._fail()
        return b"# TYPE resurgence_jobs gauge\nresurgence_jobs 0\n"

    def happened(self, name: JobName, event: str, **facts: JsonValue) -> None:
        events = self.stored.setdefault(name, [])
        reported = {"event": event, "at": instant_text(NOW), **facts}
        events.append(StoredEvent(len(events) + 1, reported))

    def _fail(self) -> None:
        if self.failing is not None:
            raise self.failing

    def _record(self, name: JobName) -> JobRecord:
        self._fail()
        if name not in self.records:
            raise NoSuchJob(f"there is no job '{name}'")
        return self.records[name]

    def _view(self, name: JobName) -> JobView:
        return JobView(self.records[name], {"epoch": 7, "rows_in": 12_000, **self.progress})

    def _want(self, name: JobName, change: Callable[[DesiredConfig], DesiredConfig]) -> JobView:
        record = self._record(name)
        self.records[name] = replace(record, desired=change(record.desired))
        return self._view(name)

    def _step(self, name: JobName) -> None:
        record = self._record(name)
        if self.is_stuck:
            return
        state = record.status.state
        worker = record.status.worker
        match record.desired.wanted:
            case Wanted.DELETED:
                del self.records[name]
                raise NoSuchJob(f"there is no job '{name}'")
            case Wanted.RUNNING:
                state = StateName.RUNNING
                worker = WorkerRecord(WorkerId("w1"), Generation(1), 4711, "a digest")
            case Wanted.STOPPED if state not in TERMINAL:
                is_ending = state is StateName.CHECKPOINT_STOPPING
                state = StateName.STOPPED if is_ending else StateName.CHECKPOINT_STOPPING
                worker = None
        status = replace(record.status, state=state, worker=worker, changed_at=NOW)
        self.records[name] = replace(record, status=status)


def _checked(sql: str, settings: dict[str, str]) -> int:
    compile_pipeline(sql, CONNECTORS, {})
    return settings_from(settings).pipeline.parallelism


@dataclass
class KeyBox:
    """The keys of a service, in memory."""

    kept: list[ApiKey]
    failing: Exception | None = None

    def read(self) -> list[ApiKey]:
        if self.failing is not None:
            raise self.failing
        return self.kept

    def add(self, name: str, role: KeyRole) -> str:
        text, key = new_key(name, role, NOW)
        self.kept = [*self.kept, key]
        return text


def simulated(controller: Controller) -> BuildController:
    """Builds a service around a controller that needs neither opening nor closing."""

    @asynccontextmanager
    async def build() -> AsyncIterator[Controller]:
        yield controller

    return build


@contextmanager
def served(
    build: BuildController,
    keys: KeyBox,
    guard: Guard | None = None,
    port: int = 0,
    session_secret: bytes | None = None,
) -> Iterator[str]:
    """A real server on a free port of the loopback address; its URL. With the console, if there is
    a secret for its sessions.
    """
    ready: list[str] = []
    is_ready = threading.Event()
    loop = asyncio.new_event_loop()
    closing = asyncio.Event()
    listener = socket.create_server(("127.0.0.1", port))

    def on_ready(url: str) -> None:
        ready.append(url)
        is_ready.set()

    def run() -> None:
        loop.run_until_complete(
            serve_until(
                closing, listener, guard or Guard(), build, keys.read, on_ready, session_secret
            )
        )
        # Sockets of pages wait for their next ping.
        if left := asyncio.all_tasks(loop):
            for each in left:
                each.cancel()
            loop.run_until_complete(asyncio.wait(left))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert is_ready.wait(30)
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join(30)
        assert not thread.is_alive()
        loop.close()
        listener.close()
