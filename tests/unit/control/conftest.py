"""A scripted worker: it speaks the real protocol over the real channel, and runs no Spark."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.control.service_harness import Service, staged

from resurgence.clock import SystemClock
from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_record import DesiredConfig, JobRecord, JobStatus, PipelineRecord
from resurgence.control.jobs.states import State
from resurgence.control.jobs.supervisor import Supervisor
from resurgence.control.jobs.transitions import EDGES, StateName
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.events import Event, EventLog
from resurgence.control.workers.scheduler import (
    Exited,
    ProcessScheduler,
    WorkerOrder,
    WorkerProcess,
)
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.errors import ErrorDomain, ResurgenceError, RetryHint, StorageError
from resurgence.graph.model import Graph
from resurgence.ids import Epoch, Generation, JobName, OperatorId, WorkerId
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import EpochCounts, OwnerKind
from resurgence.storage.object_store import ObjectStore, StoredObject
from resurgence.worker.messages import (
    TO_WORKER,
    EpochCommitted,
    EpochSealed,
    EpochStarted,
    Heartbeat,
    InputFinished,
    StartExecution,
    StateRestored,
    StopAfterEpoch,
    TaskFailedEvent,
    WorkerConnected,
    WorkerMessage,
    WorkerStopped,
    encode,
)

JOB = JobName("rides")
SQL = """CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE nowhere WITH (connector = 'blackhole');
INSERT INTO nowhere SELECT counter FROM ticks"""

FAST = {
    "pipeline.heartbeat_interval": "50ms",
    "pipeline.heartbeat_timeout": "300ms",
    "pipeline.epoch_timeout": "5s",
    "pipeline.start_timeout": "2s",
    "pipeline.stop_timeout": "2s",
    "pipeline.initial_backoff": "1ms",
    "pipeline.maximal_backoff": "20ms",
}


class ScriptedWorker:
    """One worker's life, as a script tells it."""

    def __init__(self, order: WorkerOrder, pid: int) -> None:
        self._order = order
        self.pid = pid
        self.start: StartExecution | None = None
        self.stop_asked = asyncio.Event()
        self.job_runs = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None

    @property
    def name(self) -> WorkerId:
        return self._order.worker

    @property
    def generation(self) -> Generation:
        return self._order.generation

    @property
    def first_epoch(self) -> Epoch:
        assert self.start is not None
        return Epoch(self.start.plan.epoch + 1)

    async def connect(self) -> None:
        """Say who I am and wait for the order to start."""
        reader, self._writer = await asyncio.open_connection(*self._order.address)
        await self.say(
            WorkerConnected(
                worker=self.name,
                generation=self.generation,
                token=self._order.token,
                pid=self.pid,
            )
        )
        first = TO_WORKER.validate_json(await reader.readline())
        assert isinstance(first, StartExecution)
        self.start = first
        self._listener = asyncio.create_task(self._listen(reader))

    async def restore(self) -> None:
        """Connect, say that state is restored, and wait until the job is seen to run."""
        await self.connect()
        assert self.start is not None
        await self.say(
            StateRestored(
                worker=self.name,
                generation=self.generation,
                epoch=self.start.plan.epoch,
                seconds={"restore": 0.25},
            )
        )
        await self.job_runs.wait()

    async def run_epoch(self, epoch: Epoch, rows: int = 10) -> None:
        """Start, seal and commit an epoch."""
        who = {"worker": self.name, "generation": self.generation, "epoch": epoch}
        await self.say(EpochStarted.model_validate({**who, "rows": rows}))
        await self.say(
            EpochSealed.model_validate(
                {
                    **who,
                    "rows": rows,
                    "bytes": 1,
                    "state_bytes": 1,
                    "seconds": 0.1,
                    "watermark": None,
                    "counts": EpochCounts(),
                }
            )
        )
        await self.say(EpochCommitted.model_validate(who))

    async def finish(self) -> int:
        """Run an epoch and say that it was the last."""
        await self.run_epoch(self.first_epoch)
        await self.say(
            InputFinished(worker=self.name, generation=self.generation, epoch=self.first_epoch)
        )
        return 0

    async def fail(
        self, error: str, retry_hint: RetryHint, domain: ErrorDomain, code: str = "task"
    ) -> int:
        """Report a failure and leave."""
        await self.say(
            TaskFailedEvent(
                worker=self.name,
                generation=self.generation,
                operator=OperatorId("source-1"),
                subtask=1,
                epoch=self.first_epoch,
                error=error,
                hint="fix it",
                code=code,
                domain=domain,
                retry_hint=retry_hint,
            )
        )
        return 1

    async def beat(self, phase: str = "idle", age: float = 0.0) -> None:
        """One heartbeat."""
        await self.say(
            Heartbeat(
                worker=self.name,
                generation=self.generation,
                epoch=Epoch(1),
                phase=phase,
                phase_seconds=age,
            )
        )

    async def beat_until_stopped(self) -> int:
        """Idle until the order to stop comes, and obey it."""
        while not self.stop_asked.is_set():
            await self.beat()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self.stop_asked.wait()
        await self.say(WorkerStopped(worker=self.name, generation=self.generation, epoch=Epoch(0)))
        return 0

    async def beat_for_ever(self) -> int:
        """Idle, deaf to orders."""
        while True:
            await self.beat()
            await asyncio.sleep(0.05)

    async def say(self, message: WorkerMessage) -> None:
        assert self._writer is not None
        self._writer.write(encode(message))
        await self._writer.drain()

    async def hang_up(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if isinstance(TO_WORKER.validate_json(line), StopAfterEpoch):
                self.stop_asked.set()


Script = Callable[[ScriptedWorker], Awaitable[int]]


class ScriptedProcess(WorkerProcess):
    """Stands for the operating system's view of a simulated worker."""

    def __init__(
        self, worker: ScriptedWorker, script: Script, refusals: list[ResurgenceError]
    ) -> None:
        self.pid = worker.pid
        self._refusals = refusals
        self._task = asyncio.create_task(self._live(worker, script))

    async def _live(self, worker: ScriptedWorker, script: Script) -> int:
        try:
            return await script(worker)
        except (asyncio.CancelledError, OSError):
            return -9
        finally:
            await worker.hang_up()

    async def wait(self) -> int:
        return await asyncio.shield(self._task)

    async def tear_down(self) -> None:
        if self._refusals:
            raise self._refusals.pop()
        self._task.cancel()
        await asyncio.wait([self._task])


class ScriptedScheduler(ProcessScheduler):
    """Starts simulated workers, each by the next script; the last script is repeated."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__()
        self._scripts = scripts
        self.workers: list[ScriptedWorker] = []
        self.refusals: list[ResurgenceError] = []

    async def start(self, order: WorkerOrder, exited: Exited) -> WorkerProcess:
        worker = ScriptedWorker(order, 1000 + len(self.workers))
        script = self._scripts[min(len(self.workers), len(self._scripts) - 1)]
        self.workers.append(worker)
        process = ScriptedProcess(worker, script, self.refusals)
        self.watch(order.worker, process, exited)
        return process


class FailingStore(ObjectStore):
    """An object store that is away for its next `outage` listings."""

    outage = 0

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        if self.outage > 0:
            self.outage -= 1
            raise StorageError(f"cannot list {prefix}: connection refused")
        return super().list(prefix, after)


@dataclass
class Run:
    """What a supervised job did."""

    state: State
    events: list[Event]
    workers: list[ScriptedWorker]
    took: timedelta

    def of(self, kind: str) -> list[Event]:
        return [each for each in self.events if each["event"] == kind]

    @property
    def visited(self) -> list[str]:
        """The states, in order."""
        return [str(each["to"]) for each in self.of("state")]


Wish = Callable[[JobContext], None]


@dataclass
class Supervised:
    """Runs a job under a real supervisor, with simulated workers."""

    folder: Path
    settings: dict[str, str] = field(default_factory=lambda: dict(FAST))
    on_entering: dict[StateName, Wish] = field(default_factory=dict)
    """What the user does when the job enters a state."""
    refusals: list[ResurgenceError] = field(default_factory=list)
    """How the next attempts to end a worker fail."""
    compiler: Callable[[str], Graph] = lambda sql: compile_pipeline(sql, CONNECTORS)

    def __post_init__(self) -> None:
        self.store = FailingStore(str(self.folder / "state"))
        self.metadata = MetadataStore(self.folder / "metadata.db")
        pipeline = PipelineRecord(SQL, self.store.url)
        self.metadata.put_job(
            JobRecord(JOB, pipeline, DesiredConfig(2), JobStatus(), SystemClock().now())
        )

    def run(self, *scripts: Script, before: Wish = lambda _ctx: None) -> Run:
        return asyncio.run(self._run(scripts, before))

    async def _run(self, scripts: tuple[Script, ...], before: Wish) -> Run:
        clock, settings = SystemClock(), settings_from(self.settings)
        events: list[Event] = []
        scheduler = ScriptedScheduler(*scripts)
        scheduler.refusals = self.refusals
        pool = WorkerPool(scheduler, clock)
        ctx = JobContext.of(
            JobDefinition(JOB, SQL, self.store.url, settings, self.compiler),
            DesiredConfig(parallelism=2),
            StateBackend(self.store, JOB),
            pool,
            EventLog(clock, [events.append]),
            clock,
            owner_here(OwnerKind.RUN, "this run", clock.now()),
        )
        ctx.jitter = lambda: 0.5

        def act(event: Event) -> None:
            if event["event"] == "state":
                if event["to"] == StateName.RUNNING:
                    scheduler.workers[-1].job_runs.set()
                wish = self.on_entering.get(StateName(str(event["to"])))
                if wish is not None:
                    wish(ctx)

        ctx.events.listeners.append(act)
        before(ctx)
        began_at = clock.now()
        try:
            async with asyncio.timeout(10):
                state = await Supervisor(ctx, self.metadata).run()
        finally:
            await pool.close()
        took = clock.now() - began_at
        await asyncio.gather(*scheduler._watchers)
        for each in events:
            if each["event"] == "state":
                assert StateName(str(each["to"])) in EDGES[StateName(str(each["from"]))]
        return Run(state, events, scheduler.workers, took)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Supervised]:
    supervised = Supervised(tmp_path)
    yield supervised
    supervised.metadata.close()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    return staged(tmp_path, monkeypatch)
