"""A service under test: the real controller, keepers, supervisors, states, channel, database and
object storage. Workers are simulated; storage and database fail, hang and block when a test says
so; a controller can be killed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Concatenate, ParamSpec, cast

import pytest
from tests.unit.control.faulty_stores import (
    LONGEST_SCENE,
    LOOK_SECONDS,
    FaultSwitch,
    FaultyStore,
    HeldMetadata,
    Hold,
)
from tests.unit.control.simulated_workers import SimulatedScheduler, World

from resurgence.clock import SystemClock
from resurgence.config import settings_from
from resurgence.control.controller import Controller, NewJob
from resurgence.control.definitions.job_environment import JobEnvironment
from resurgence.control.jobs import job_keeper, owned_jobs, states, supervisor, wake_up
from resurgence.control.jobs.job_record import JobRecord, JobStatus
from resurgence.control.jobs.transitions import EDGES, TERMINAL, StateName
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry import event_recorder
from resurgence.control.telemetry.events import Event
from resurgence.control.telemetry.webhooks import Webhooks
from resurgence.control.workers import worker_pool
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.ids import JobName

JOB = JobName("rides")
SQL = """CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE nowhere WITH (connector = 'blackhole');
INSERT INTO nowhere SELECT counter FROM ticks"""
QUICK = {
    "pipeline.heartbeat_interval": "50ms",
    "pipeline.heartbeat_timeout": "1500ms",
    "pipeline.epoch_timeout": "20s",
    "pipeline.start_timeout": "4s",
    "pipeline.stop_timeout": "3s",
    "pipeline.initial_backoff": "1ms",
    "pipeline.maximal_backoff": "20ms",
    "pipeline.allowed_restarts": "50",
    "controller.adopt_timeout": "4s",
}
_P = ParamSpec("_P")


class Onlooker(Webhooks):
    """Sees every event of a controller, as webhooks do."""

    def __init__(self, see: Callable[[JobName, Event], None]) -> None:
        self._see = see

    def note(self, job: JobName, event: Event) -> None:
        self._see(job, event)

    def start(self) -> None:
        return

    async def close(self, deadline: timedelta) -> None:
        return


@dataclass
class Service:
    """One service, and its controllers one after the other."""

    folder: Path
    world: World = field(default_factory=World)
    storage: FaultSwitch = field(default_factory=FaultSwitch)
    settings: dict[str, str] = field(default_factory=lambda: dict(QUICK))
    standby: int = 0
    seen: list[tuple[JobName, Event]] = field(default_factory=list)
    on_event: Callable[[JobName, Event], None] = lambda _job, _event: None

    def __post_init__(self) -> None:
        self.holds: list[Hold] = []
        self.database = FaultSwitch()
        self._seen_before = 0
        self._metadata: HeldMetadata | None = None
        self._controller: Controller | None = None
        self._scheduler: SimulatedScheduler | None = None
        self._pool: WorkerPool | None = None

    @property
    def metadata(self) -> HeldMetadata:
        assert self._metadata is not None
        return self._metadata

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    def play(self, scene: Callable[[Service], Awaitable[None]]) -> None:
        """Run a scene against an open controller; afterwards nothing is left."""
        asyncio.run(self._play(scene))

    async def _play(self, scene: Callable[[Service], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(LONGEST_SCENE.total_seconds()):
                await self.open()
                await scene(self)
        finally:
            self.storage.repair()
            self.world.open_gates()
            if self._controller is not None:
                await self.kill()
            for worker in self.world.alive:
                worker.kill()
            if self.world.workers:
                await asyncio.wait([each.life for each in self.world.workers])
        self._check_transitions()

    async def open(self) -> Controller:
        """Another controller, on what the ones before left."""
        self.database = FaultSwitch()
        self._seen_before = len(self.seen)
        settings = settings_from(self.settings)
        self._metadata = HeldMetadata(self.folder / "metadata.db", self.database, self.holds)
        self._scheduler = SimulatedScheduler(self.world)
        self._pool = WorkerPool(
            self._scheduler,
            SystemClock(),
            patience=settings.controller.adopt_timeout,
            standby=self.standby,
            standby_settings=settings,
            log_folder=self.folder / "logs",
        )
        self._controller = Controller(
            self._metadata,
            self._pool,
            JobEnvironment(str(self.folder / "state"), self.folder, self.settings),
            SystemClock(),
            Onlooker(self._note),
        )
        await self._controller.open()
        return self._controller

    async def kill(self) -> None:
        """What SIGKILL does: from one instant to the next the controller does nothing any more, and
        its connections are closed. Its tasks are swept up, which can do no harm then.
        """
        assert self._scheduler is not None
        assert self._pool is not None
        self.database.severed = self._scheduler.severed = True
        self._controller = None
        self.metadata.may_take_events.set()
        self.metadata.release_delete()
        for hold in self.holds:
            hold.release()
        self.holds.clear()
        spared = {asyncio.current_task(), *self.world.tasks}
        swept = [each for each in asyncio.all_tasks() if each not in spared]
        for task in swept:
            task.cancel()
        if swept:
            _, pending = await asyncio.wait(swept, timeout=5)
            assert not pending
        await self._pool.channel.close()
        self.metadata.close()

    async def close(self) -> None:
        """End the controller as a service does."""
        await self.controller.close()
        self._controller = None
        self.metadata.close()

    # ---------------------------------------------------------------- jobs

    async def create(self, name: JobName = JOB, **settings: str) -> None:
        values = {f"pipeline.{key}": value for key, value in settings.items()}
        await self.controller.create(NewJob(name, SQL, settings=values))

    async def record(self, name: JobName = JOB) -> JobRecord:
        return (await self.controller.job(name)).record

    async def status(self, name: JobName = JOB) -> JobStatus:
        return (await self.record(name)).status

    def stored(self, name: JobName = JOB) -> JobRecord | None:
        """As the database has it."""
        store = MetadataStore(self.folder / "metadata.db")
        try:
            return store.job(name)
        finally:
            store.close()

    async def reach(self, state: StateName, name: JobName = JOB) -> None:
        """Wait until the job is in that state."""
        while (await self.status(name)).state is not state:
            await asyncio.sleep(LOOK_SECONDS)

    async def run(self, name: JobName = JOB) -> None:
        """Wait until the job runs as it is wanted, with one worker that is well, and the database
        says so.
        """
        while not await self._runs(name):
            await asyncio.sleep(LOOK_SECONDS)

    async def _runs(self, name: JobName) -> bool:
        record = await self.record(name)
        status, desired = record.status, record.desired
        mine = [each for each in self.world.alive if each.job == name]
        return (
            status.state is StateName.RUNNING
            and (status.run, status.parallelism) == (desired.run, desired.parallelism)
            and status.worker is not None
            and [each.name for each in mine] == [status.worker.worker]
            and mine[0].is_well
            and mine[0].name in self._at_work(name)
            and _matches(self.stored(name), status)
        )

    def _at_work(self, name: JobName) -> list[object]:
        """The workers that this controller has started or taken over."""
        events = (each for job, each in self.seen[self._seen_before :] if job == name)
        return [each["worker"] for each in events if each["event"] == "worker_started"]

    async def end(self, state: StateName, name: JobName = JOB) -> None:
        """Wait until the job is at that end, no worker of it is left, and the database says so."""
        assert state in TERMINAL
        while True:
            status = await self.status(name)
            mine = [each for each in self.world.alive if each.job == name]
            if status.state is state and not mine and _matches(self.stored(name), status):
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def gone(self, name: JobName = JOB) -> None:
        """Wait until there is no such job any more."""
        while name in [each.record.name for each in await self.controller.jobs()]:
            await asyncio.sleep(LOOK_SECONDS)

    def hold(self, state: StateName) -> Hold:
        """Hold the job when it enters that state the next time."""
        held = Hold(JOB, state)
        self.holds.append(held)
        return held

    # ---------------------------------------------------------------- events

    def _note(self, job: JobName, event: Event) -> None:
        self.seen.append((job, event))
        self.on_event(job, event)

    def of(self, kind: str, name: JobName = JOB) -> list[Event]:
        return [each for job, each in self.seen if job == name and each["event"] == kind]

    def visited(self, name: JobName = JOB) -> list[str]:
        return [str(each["to"]) for each in self.of("state", name)]

    def _check_transitions(self) -> None:
        """Only edges of the table; a run and a new controller begin at Created."""
        at: dict[JobName, StateName] = {}
        for job, event in self.seen:
            if event["event"] == "state":
                source, target = StateName(str(event["from"])), StateName(str(event["to"]))
                assert target in EDGES[source]
                assert source in (at.get(job, StateName.CREATED), StateName.CREATED)
                at[job] = target


def _matches(stored: JobRecord | None, status: JobStatus) -> bool:
    return stored is not None and (
        (stored.status.state, stored.status.run, stored.status.generation, stored.status.worker)
        == (status.state, status.run, status.generation, status.worker)
    )


def simulated(
    scene: Callable[Concatenate[Service, _P], Awaitable[None]],
) -> Callable[Concatenate[Service, _P], None]:
    """A test that is a scene."""

    @functools.wraps(scene)
    def test(service: Service, *args: _P.args, **kwargs: _P.kwargs) -> None:
        service.play(lambda staged: scene(staged, *args, **kwargs))

    return cast(Callable[Concatenate[Service, _P], None], test)


def quicken(patch: pytest.MonkeyPatch) -> None:
    """Pauses that are long for people are short here."""
    for module, name, milliseconds in (
        (supervisor, "_PAUSE", 10),
        (supervisor, "_CATCH_UP", 20),
        (supervisor, "_SAVE_WITHIN", 1500),
        (event_recorder, "_PAUSE", 20),
        (job_keeper, "_PAUSE", 50),
        (owned_jobs, "_SPREAD", 50),
        (worker_pool, "_STANDBY_PAUSE", 50),
        (worker_pool, "_STANDBY_POLL", 20),
        (states, "_STEP", 1000),
        (wake_up, "PROGRESS_TICK", 50),
    ):
        patch.setattr(module, name, timedelta(milliseconds=milliseconds))


def staged(folder: Path, patch: pytest.MonkeyPatch) -> Service:
    """A service whose storage is in the test's handles."""
    service = Service(folder)
    quicken(patch)
    patch.setattr(job_keeper, "ObjectStore", functools.partial(FaultyStore, service.storage))
    return service
