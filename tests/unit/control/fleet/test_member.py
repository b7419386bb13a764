"""A controller among others, on a real Postgres: what it takes, lets go of and hands over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import ParamSpec, TypeVar

import pytest
from pydantic import JsonValue
from tests.postgres import PostgresServer
from tests.unit.control.faulty_stores import until

from resurgence.control.fleet.assignment import Dead
from resurgence.control.fleet.member import FleetMember
from resurgence.control.jobs.job_record import (
    DesiredConfig,
    JobRecord,
    JobStatus,
    PipelineRecord,
    rescaled,
)
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import MetadataStore
from resurgence.errors import JobLost, StorageError
from resurgence.ids import ControllerId, JobName
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import Owner, OwnerKind

_P = ParamSpec("_P")
_T = TypeVar("_T")
JOBS = tuple(JobName(f"job{n}") for n in range(6))
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=2)
DEADLINE_SECONDS = 60


class Jobs:
    """The jobs of one controller, without keepers."""

    def __init__(self) -> None:
        self.records: dict[JobName, JobRecord] = {}
        self.orphaned: set[JobName] = set()
        self.lost: list[JobName] = []
        self.handed_over: list[JobName] = []
        self.places: list[int] = []
        """Of the jobs in their batches. Each needs a new worker."""

    def revisions(self) -> Mapping[JobName, int]:
        return {name: record.revision for name, record in self.records.items()}

    async def take(self, record: JobRecord, *, orphaned: bool, nth: int) -> bool:
        assert record.name not in self.records
        self.records[record.name] = record
        self.places.append(nth)
        if orphaned:
            self.orphaned.add(record.name)
        return False

    async def let_go(self, name: JobName) -> None:
        self.lost.append(name)
        del self.records[name]

    async def hand_over(self, name: JobName) -> JobRecord | None:
        await asyncio.sleep(0.05)
        self.handed_over.append(name)
        return self.records.pop(name, None)

    def apply(self, record: JobRecord) -> None:
        self.records[record.name] = record

    def progress(self) -> Mapping[JobName, dict[str, JsonValue]]:
        return {name: {"epoch": 1} for name in self.records}


class Fleet:
    """Controllers on one database."""

    def __init__(self, url: str) -> None:
        self.store = MetadataStore(url)
        self.owners = self.store.owners(LEASE)
        self.jobs: list[Jobs] = []
        self._calls: set[object] = set()
        """Calls of the database in threads."""
        self.members: list[FleetMember] = []

    def add_jobs(self) -> None:
        for name in JOBS:
            pipeline = PipelineRecord("", "state")
            running = JobStatus(state=StateName.RUNNING, run=1)
            self.store.create_job(JobRecord(name, pipeline, DesiredConfig(2), running, NOW))

    async def join(
        self, process: Owner | None = None, ask_storage: Callable[[], object] = lambda: None
    ) -> FleetMember:
        jobs = Jobs()
        here = process or owner_here(OwnerKind.SERVICE, "service", NOW)
        owners, store = self.store.owners(LEASE), self.store
        for each in (owners.renew, owners.fleet, owners.claim, owners.put_progress):
            setattr(owners, each.__name__, self._counted(each))
        store.listen = self._counted(MetadataStore.listen.__get__(store))  # type: ignore[method-assign]
        member = FleetMember(store, owners, jobs, here, "", ask_storage)
        await member.open()
        self.jobs.append(jobs)
        self.members.append(member)
        return member

    def is_spread(self, *loads: int) -> bool:
        return [len(each.records) for each in self.jobs] == list(loads)

    def wait_for_threads(self) -> None:
        """The threads of controllers that have died still use the store."""
        give_up_at = time.monotonic() + DEADLINE_SECONDS
        while self._calls and time.monotonic() < give_up_at:
            # Listeners end when notified.
            with contextlib.suppress(StorageError):
                self.owners.leave(ControllerId("no one"))
            time.sleep(0.05)

    def _counted(self, call: Callable[_P, _T]) -> Callable[_P, _T]:
        def counted(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            mark = object()
            self._calls.add(mark)
            try:
                return call(*args, **kwargs)
            finally:
                self._calls.discard(mark)

        return counted

    async def die(self, member: FleetMember) -> None:
        """It does nothing any more, as if it was killed or frozen."""
        member._ended.set()
        for task in member._tasks:
            task.cancel()
        await asyncio.gather(*member._tasks, return_exceptions=True)
        member._tasks.clear()


@pytest.fixture
def fleet(postgres_url: str) -> Iterator[Fleet]:
    opened = Fleet(postgres_url)
    with closing(opened.store):
        yield opened
        opened.wait_for_threads()


def play(fleet: Fleet, scene: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await scene()
        finally:
            for each in fleet.members:
                await fleet.die(each)

    asyncio.run(run())


def dead_process() -> Owner:
    here = owner_here(OwnerKind.SERVICE, "service", NOW)
    return here.model_copy(update={"process_started": "another process"})


def test_jobs_are_spread_as_controllers_come_and_go(fleet: Fleet) -> None:
    async def scene() -> None:
        fleet.add_jobs()
        await fleet.join()
        await until(lambda: fleet.is_spread(6))
        second = await fleet.join()
        await until(lambda: fleet.is_spread(3, 3))
        assert len(fleet.jobs[0].handed_over) == 3
        assert fleet.jobs[0].lost == []
        await second.close()
        await until(lambda: fleet.is_spread(6, 0))
        assert fleet.jobs[1].lost == []

    play(fleet, scene)


def test_the_jobs_of_a_process_that_has_ended_are_taken_over_at_once(fleet: Fleet) -> None:
    async def scene() -> None:
        fleet.add_jobs()
        first = await fleet.join(dead_process())
        await until(lambda: fleet.is_spread(6))
        await fleet.die(first)
        await fleet.join()
        await until(lambda: len(fleet.jobs[1].records) == 6)
        assert fleet.jobs[1].orphaned == set(JOBS)
        assert fleet.jobs[1].places == list(range(6)), "their starts are not spread"

    play(fleet, scene)


def test_a_silent_controller_loses_its_jobs_and_joins_again(fleet: Fleet) -> None:
    async def scene() -> None:
        fleet.add_jobs()
        first = await fleet.join()
        before = first.id
        await until(lambda: fleet.is_spread(6))
        await fleet.die(first)
        await fleet.join()
        await until(lambda: len(fleet.jobs[1].records) == 6)
        assert fleet.jobs[1].orphaned == set()
        for name in JOBS:
            with pytest.raises(JobLost):
                first.require_owned(name, before, False)
        await first._reconcile()
        assert sorted(fleet.jobs[0].lost) == list(JOBS)
        assert first.id != before
        assert fleet.owners.renew(first.id, leaving=False)
        assert len(fleet.owners.fleet().peers) == 2

    play(fleet, scene)


def test_a_request_reaches_the_owner(fleet: Fleet) -> None:
    async def scene() -> None:
        fleet.add_jobs()
        await fleet.join()
        await until(lambda: fleet.is_spread(6))
        changed = fleet.store.change_desired(JOBS[0], lambda job: rescaled(job.desired, 7), NOW)
        await until(lambda: fleet.jobs[0].records[JOBS[0]] == changed)
        await until(lambda: fleet.store.progress().keys() == set(JOBS))

    play(fleet, scene)


def test_a_deleted_job_is_let_go(fleet: Fleet) -> None:
    async def scene() -> None:
        fleet.add_jobs()
        await fleet.join()
        await until(lambda: fleet.is_spread(6))
        fleet.store.delete_job(JOBS[0])
        await until(lambda: fleet.jobs[0].lost == [JOBS[0]])

    play(fleet, scene)


def test_a_claim_of_which_the_answer_was_lost_is_found(fleet: Fleet) -> None:
    async def scene() -> None:
        member = await fleet.join()
        fleet.add_jobs()
        fleet.owners.claim(member.id, JOBS[:2])
        await until(lambda: fleet.is_spread(6))

    play(fleet, scene)


def test_without_the_database_and_a_lease_only_an_undisputed_job_may_be_claimed_again(
    fleet: Fleet, postgres_server: PostgresServer
) -> None:
    async def scene() -> None:
        fleet.add_jobs()
        member = await fleet.join()
        await until(lambda: fleet.is_spread(6))
        await fleet.die(member)
        postgres_server.kill()
        member._streak.renewed(time.monotonic())
        member.require_owned(JOBS[0], member.id, False)
        await asyncio.sleep(LEASE.total_seconds())
        member.require_owned(JOBS[0], member.id, True)
        with pytest.raises(JobLost):
            member.require_owned(JOBS[0], member.id, False)
        with pytest.raises(StorageError):
            await member._reconcile()
        assert fleet.is_spread(6)
        postgres_server.start()
        await member._reconcile()
        assert fleet.is_spread(6)

    play(fleet, scene)


def test_a_controller_that_could_not_renew_asks_before_it_claims(fleet: Fleet) -> None:
    async def scene() -> None:
        fleet.add_jobs()
        member = await fleet.join()
        await until(lambda: fleet.is_spread(6))
        await fleet.die(member)
        fleet.owners.declare_dead([Dead(member.id, is_proven=True)])
        member._streak.renewed(time.monotonic())
        member.require_owned(JOBS[0], member.id, True)
        await asyncio.sleep(LEASE.total_seconds())
        with pytest.raises(JobLost):
            member.require_owned(JOBS[0], member.id, True)

    play(fleet, scene)


def test_a_controller_without_storage_gives_up_its_jobs_until_it_has_it_again(fleet: Fleet) -> None:
    is_cut_off = False

    def ask() -> None:
        if is_cut_off:
            raise StorageError("no route")

    async def scene() -> None:
        nonlocal is_cut_off
        fleet.add_jobs()
        await fleet.join(ask_storage=ask)
        await fleet.join()
        await until(lambda: fleet.is_spread(3, 3))
        is_cut_off = True
        await until(lambda: fleet.is_spread(0, 6))
        assert len(fleet.jobs[0].lost) == 3
        await asyncio.sleep(LEASE.total_seconds())
        assert fleet.is_spread(0, 6)
        is_cut_off = False
        await until(lambda: fleet.is_spread(3, 3))
        assert fleet.jobs[1].lost == []

    play(fleet, scene)


def test_nothing_moves_if_no_controller_reaches_the_storage(fleet: Fleet) -> None:
    is_away = False

    def ask() -> None:
        if is_away:
            raise StorageError("no route")

    async def scene() -> None:
        nonlocal is_away
        fleet.add_jobs()
        for _ in range(2):
            await fleet.join(ask_storage=ask)
        await until(lambda: fleet.is_spread(3, 3))
        handed_over = [list(each.handed_over) for each in fleet.jobs]
        is_away = True
        await asyncio.sleep(2 * LEASE.total_seconds())
        assert fleet.is_spread(3, 3)
        assert [each.lost for each in fleet.jobs] == [[], []]
        assert [each.handed_over for each in fleet.jobs] == handed_over

    play(fleet, scene)


def test_a_job_that_cannot_be_released_is_taken_up_again(
    fleet: Fleet, postgres_server: PostgresServer
) -> None:
    async def scene() -> None:
        fleet.add_jobs()
        member = await fleet.join()
        await until(lambda: fleet.is_spread(6))
        await fleet.die(member)
        postgres_server.kill()
        await member._move(JOBS[0])
        assert fleet.jobs[0].handed_over == [JOBS[0]]
        assert fleet.is_spread(6)
        postgres_server.start()

    play(fleet, scene)
