"""Two controllers and one job: a live owner is named and not fenced, a dead one is not waited for."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.unit.control.service_harness import JOB, Service, simulated

from resurgence.clock import SystemClock
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_record import JobStatus, StopMode
from resurgence.control.jobs.states import Failed
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store import lease_keeper
from resurgence.ids import JobName
from resurgence.state.backend import StateBackend
from resurgence.state.protocol import ownership
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import Owner, OwnerKind
from resurgence.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from tests.unit.control.conftest import ScriptedWorker, Supervised

RIDES = JobName("rides")


async def finishes(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.finish()


async def stops_on_request(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.beat_until_stopped()


async def dies_at_once(_worker: ScriptedWorker) -> int:
    return -9


def elsewhere(now: datetime) -> Owner:
    here = owner_here(OwnerKind.RUN, "other", now)
    return here.model_copy(update={"host": "far-away", "process_space": "another boot"})


def claim_for(job: Supervised, owner: Owner, renewed_at: datetime | None = None) -> None:
    now = SystemClock().now()
    backend = StateBackend(job.store, RIDES)
    claim = backend.claim_generation(now, owner=owner)
    if renewed_at is not None:
        backend.leases.renew(claim.job, claim.generation, owner, renewed_at)


def leases(job: Supervised) -> list[str]:
    return [each.path for each in job.store.list("rides/leases")]


def test_a_job_of_a_live_process_is_refused_and_not_fenced(job: Supervised) -> None:
    claim_for(job, owner_here(OwnerKind.SERVICE, "a service", SystemClock().now()))
    run = job.run(finishes)
    assert isinstance(run.state, Failed)
    assert "has been run by a service on" in run.state.reason
    assert run.state.failure.domain == "user"
    assert StateBackend(job.store, RIDES).newest_generation() == 1
    assert not run.workers


def test_take_over_fences_the_live_process_out(job: Supervised) -> None:
    claim_for(job, owner_here(OwnerKind.SERVICE, "a service", SystemClock().now()))

    def take_over(ctx: JobContext) -> None:
        ctx.claim.take_over = True

    run = job.run(finishes, before=take_over)
    assert run.visited[-1] == "Finished"
    assert StateBackend(job.store, RIDES).newest_generation() == 2


def test_a_recovery_does_not_reclaim_a_job_that_was_taken_over(job: Supervised) -> None:
    """Otherwise two controllers would fence each other out for ever. Nor does it write the status,
    which belongs to the new owner.
    """

    def lose(ctx: JobContext) -> None:
        if ctx.incidents.open is None:
            claim_for(job, owner_here(OwnerKind.RUN, "other", SystemClock().now()))
            job.metadata.record_status(RIDES, of_new_owner())

    def of_new_owner() -> JobStatus:
        claim = StateBackend(job.store, RIDES).newest_claim()
        assert claim is not None
        return JobStatus(StateName.RUNNING, generation=claim.generation, identity=claim.job)

    job.on_entering[StateName.RECOVERING] = lose
    run = job.run(dies_at_once)
    assert isinstance(run.state, Failed)
    assert "has been run by `resurgence run` on" in run.state.reason
    assert len(run.workers) == 1
    record = job.metadata.job(RIDES)
    assert record is not None
    assert record.status == of_new_owner()


def test_the_lease_is_released_when_the_job_ends(job: Supervised) -> None:
    held: list[list[str]] = []

    def look_and_stop(ctx: JobContext) -> None:
        held.append(leases(job))
        ctx.requests.request_stop(StopMode.CHECKPOINT)

    job.on_entering[StateName.RUNNING] = look_and_stop
    run = job.run(stops_on_request)
    assert run.visited[-1] == "Stopped"
    assert held == [["rides/leases/0000000001.json"]]
    assert leases(job) == []


def test_a_lease_elsewhere_that_is_not_renewed_is_waited_out(
    job: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "LEASE", timedelta(milliseconds=600))
    now = SystemClock().now()
    claim_for(job, elsewhere(now), renewed_at=now + timedelta(hours=1))
    run = job.run(finishes)
    assert run.visited[-1] == "Finished"
    assert len(run.of("owner_watched")) == 1
    assert run.took >= timedelta(milliseconds=500)


def test_a_lease_elsewhere_that_is_renewed_is_respected(job: Supervised) -> None:
    now = SystemClock().now()
    claim_for(job, elsewhere(now), renewed_at=now)

    def renew(ctx: JobContext) -> None:
        async def later() -> None:
            await asyncio.sleep(0.3)
            claim = ctx.backend.newest_claim()
            assert claim is not None
            owner, again = elsewhere(now), SystemClock().now()
            ctx.backend.leases.renew(claim.job, claim.generation, owner, again)

        tasks.append(asyncio.get_running_loop().create_task(later()))

    tasks: list[asyncio.Task[None]] = []
    run = job.run(finishes, before=renew)
    assert isinstance(run.state, Failed)
    assert "on far-away" in run.state.reason
    assert run.took < timedelta(seconds=5)


def test_an_expired_lease_is_not_waited_for(job: Supervised) -> None:
    now = SystemClock().now()
    claim_for(job, elsewhere(now), renewed_at=now - ownership.LEASE)
    run = job.run(finishes)
    assert run.visited[-1] == "Finished"
    assert not run.of("owner_watched")


@simulated
async def test_a_service_renews_the_lease_of_a_job_that_it_runs(service: Service) -> None:
    backend = StateBackend(ObjectStore(str(service.folder / "state")), JOB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease_keeper, "RENEW_EVERY", timedelta(milliseconds=50))
        await service.create()
        await service.run()
        path = backend.paths.lease(backend.newest_generation())
        first = backend.store.read(path)
        while backend.store.read(path) == first:
            await asyncio.sleep(0.02)


@simulated
async def test_the_next_process_of_a_service_owns_the_jobs_of_the_previous_one(
    service: Service,
) -> None:
    """The lease says that its owner lives, as it would in a container with a new process space."""
    await service.create()
    await service.run()
    await service.kill()
    await service.open()
    await service.run()
    backend = StateBackend(ObjectStore(str(service.folder / "state")), JOB)
    assert backend.newest_generation() == 1
    assert [each["origin"] for each in service.of("worker_started")] == ["started", "adopted"]


@simulated
async def test_a_service_fails_a_job_that_another_process_runs(service: Service) -> None:
    now = SystemClock().now()
    backend = StateBackend(ObjectStore(str(service.folder / "state")), JOB)
    backend.claim_generation(now, owner=owner_here(OwnerKind.RUN, "other", now))
    await service.create()
    await service.end(StateName.FAILED)
    status = await service.status()
    assert "has been run by `resurgence run` on" in status.cause
    assert status.failure is not None
    assert status.failure["what_to_do"] == "Stop it there, then start this job again."
    assert backend.newest_generation() == 1
    assert not service.world.workers
    backend.leases.release(backend.newest_generation())
    await service.controller.start(JOB)
    await service.run()
