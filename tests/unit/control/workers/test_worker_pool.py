"""Standby workers: promoted when a job needs one, replaced when they are unhealthy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.control.faulty_stores import until
from tests.unit.control.service_harness import JOB, SQL, Service, simulated
from tests.unit.control.simulated_workers import SimulatedWorker

from resurgence.control.controller import NewJob
from resurgence.control.jobs.transitions import StateName
from resurgence.control.workers import worker_pool as subject
from resurgence.control.workers.scheduler import WorkerStartFailed
from resurgence.ids import JobName


@pytest.fixture(autouse=True)
def one_standby(service: Service) -> None:
    service.standby = 1


def origins(service: Service, name: JobName = JOB) -> list[object]:
    return [each["origin"] for each in service.of("worker_started", name)]


async def standby(service: Service) -> SimulatedWorker:
    """The standby, once it is ready."""
    while True:
        alive = {each.name: each for each in service.world.alive}
        for view in await service.controller.workers():
            if view.state == "standby" and view.worker.worker in alive:
                return alive[view.worker.worker]
        await asyncio.sleep(0.005)


async def end(worker: SimulatedWorker) -> None:
    worker.kill()
    await until(lambda: not worker.is_alive)


@simulated
async def test_a_standby_is_promoted_and_another_one_kept(service: Service) -> None:
    first = await standby(service)
    await service.create()
    await service.run()
    assert origins(service) == ["standby"]
    (order,) = first.started
    assert (order.job, order.plan.generation) == (JOB, 1)
    second = await standby(service)
    assert second is not first


@simulated
async def test_a_job_whose_worker_dies_continues_in_the_standby(service: Service) -> None:
    await service.create()
    await service.run()
    ready = await standby(service)
    worker = next(each for each in service.world.alive if each.job == JOB)
    worker.kill()
    await until(lambda: bool(ready.started))
    await service.run()
    assert origins(service)[-1] == "standby"


@pytest.mark.parametrize("what", [SimulatedWorker.kill, SimulatedWorker.freeze])
@simulated
async def test_an_unhealthy_standby_is_replaced(
    service: Service, what: Callable[[SimulatedWorker], None]
) -> None:
    first = await standby(service)
    what(first)
    await until(lambda: not first.is_alive)
    second = await standby(service)
    assert second is not first
    await service.create()
    await service.run()
    assert second.started


@simulated
async def test_a_standby_that_fell_silent_is_not_used(service: Service) -> None:
    first = await standby(service)
    first.silent = True
    await until(lambda: not first.is_alive)
    await service.create()
    await service.run()
    assert not first.started


@simulated
async def test_a_standby_that_was_silent_while_the_controller_was_paused_is_used(
    service: Service,
) -> None:
    first = await standby(service)
    for _ in range(5):
        await asyncio.sleep(0.01)
        time.sleep(0.5)  # No message is read for longer than the heartbeat timeout.
    await service.create()
    await service.run()
    assert origins(service) == ["standby"]
    assert first.started


@simulated
async def test_a_standby_that_does_not_become_ready_is_replaced(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_STANDBY_DEADLINE", timedelta(milliseconds=300))
    await end(await standby(service))
    service.world.befalls_next = SimulatedWorker.freeze
    await until(lambda: len(service.world.workers) >= 3)
    assert not service.world.workers[1].is_alive
    await standby(service)


@simulated
async def test_a_standby_with_other_spark_settings_is_not_used(service: Service) -> None:
    first = await standby(service)
    settings = {"spark.driver.memory": "3g"}
    await service.controller.create(NewJob(JOB, SQL, settings=settings))
    await service.run()
    assert origins(service) == ["started"]
    assert not first.started


@pytest.fixture
def loaded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jar that a standby has loaded."""
    monkeypatch.setattr(subject, "ready_jars", lambda _directory: (Path(request.param),))


@pytest.mark.parametrize(
    ("loaded", "origin"), [("/a.jar", "standby"), ("/b.jar", "started")], indirect=["loaded"]
)
@pytest.mark.usefixtures("loaded")
@simulated
async def test_a_standby_is_used_if_it_has_loaded_the_jars_of_the_job(
    service: Service, origin: str
) -> None:
    await standby(service)
    settings = {"spark.jars": "/a.jar"}
    await service.controller.create(NewJob(JOB, SQL, settings=settings))
    await service.run()
    assert origins(service) == [origin]


@simulated
async def test_the_start_of_a_standby_is_retried(service: Service) -> None:
    service.world.refusals += [WorkerStartFailed("no more processes")] * 3
    await end(await standby(service))
    await standby(service)
    assert not service.world.refusals


@simulated
async def test_a_promoted_standby_is_adopted_by_the_next_controller(service: Service) -> None:
    first = await standby(service)
    await service.create()
    await service.run()
    await service.kill()
    await service.open()
    await service.run()
    assert origins(service) == ["standby", "adopted"]
    assert first.is_well


@simulated
async def test_a_standby_does_not_outlive_its_controller(service: Service) -> None:
    first = await standby(service)
    await service.kill()
    await until(lambda: not first.is_alive)
    await service.open()
    second = await standby(service)
    await service.close()
    assert not second.is_alive


@simulated
async def test_the_log_of_a_promoted_standby_is_found_with_its_job(service: Service) -> None:
    first = await standby(service)
    log = service.folder / "logs" / f"{first.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("warm\n")
    await service.create()
    await service.run()
    (file,) = await service.controller.log_files(JOB)
    assert file.read_text() == "warm\n"


@simulated
async def test_workers_are_listed_with_their_jobs(service: Service) -> None:
    await service.create()
    await service.run()
    await standby(service)
    seen = {view.job: view.state for view in await service.controller.workers()}
    assert seen == {JOB: "running", None: "standby"}


@simulated
async def test_the_start_of_a_worker_is_retried(service: Service) -> None:
    settings = {"spark.driver.memory": "3g"}
    await standby(service)
    service.world.refusals += [WorkerStartFailed("no more processes")] * 2
    await service.controller.create(NewJob(JOB, SQL, settings=settings))
    await service.run()
    assert service.visited().count("Recovering") == 2
    assert service.visited()[-1] == StateName.RUNNING
