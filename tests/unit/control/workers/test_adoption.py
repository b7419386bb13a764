"""A controller was killed and its workers continue: the next one adopts those that it can trust,
and replaces the others.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from tests.unit.control.faulty_stores import until
from tests.unit.control.service_harness import JOB, Service, simulated
from tests.unit.control.simulated_workers import (
    SimulatedWorker,
    fails_and_stays,
    fails_for_good,
    finishes,
    works,
)

from resurgence.clock import SystemClock
from resurgence.control.jobs.job_record import StopMode, WorkerRecord
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import MetadataStore
from resurgence.ids import Generation
from resurgence.state.backend import StateBackend
from resurgence.storage.object_store import ObjectStore

START_UP = ["Compiling", "Scheduling", "Running"]


def origins(service: Service) -> list[object]:
    return [each["origin"] for each in service.of("worker_started")]


async def run_then_kill(service: Service) -> SimulatedWorker:
    """A job that runs, without a controller."""
    await service.create()
    await service.run()
    await service.kill()
    worker = service.world.workers[0]
    await until(lambda: not worker.is_connected)
    return worker


def change_worker_on_record(service: Service, **changes: object) -> None:
    store = MetadataStore(service.folder / "metadata.db")
    record = store.job(JOB)
    assert record is not None
    worker = record.status.worker
    assert isinstance(worker, WorkerRecord)
    changed = replace(worker, **changes)  # type: ignore[arg-type]
    store.record_status(JOB, replace(record.status, worker=changed))
    store.close()


# ---------------------------------------------------------------- taken over


@simulated
async def test_a_running_worker_is_adopted_without_a_restart(service: Service) -> None:
    await run_then_kill(service)
    await service.open()
    await service.run()
    assert service.visited() == [*START_UP, "Running"]
    assert origins(service) == ["started", "adopted"]
    assert len(service.world.workers) == 1
    assert service.of("failure") == service.of("incident") == []


@simulated
async def test_a_worker_is_adopted_repeatedly(service: Service) -> None:
    await run_then_kill(service)
    for _ in range(3):
        await service.open()
        await service.run()
        await service.kill()
    await service.open()
    await service.run()
    assert len(service.world.workers) == 1


@simulated
async def test_buffered_messages_of_an_adopted_worker_arrive_in_order(service: Service) -> None:
    worker = await run_then_kill(service)
    await worker.run_epoch()
    await worker.run_epoch()
    await service.open()
    await service.run()
    assert [each["epoch"] for each in service.of("committed")] == [1, 2, 3]


@simulated
async def test_an_adopted_worker_is_watched_and_replaced_when_it_dies(service: Service) -> None:
    await run_then_kill(service)
    await service.open()
    await service.run()
    service.world.workers[0].kill()
    await until(lambda: len(service.world.workers) == 2)
    await service.run()
    (failure,) = service.of("failure")
    assert "exited with an unknown status" in str(failure["error"])


@simulated
async def test_an_adopted_worker_follows_orders(service: Service) -> None:
    await run_then_kill(service)
    await service.open()
    await service.run()
    await service.controller.stop(JOB, StopMode.CHECKPOINT)
    await service.end(StateName.STOPPED)
    assert service.visited()[-3:] == ["CheckpointStopping", "Stopping", "Stopped"]


@simulated
async def test_a_worker_that_is_still_restoring_is_adopted(service: Service) -> None:
    service.world.may_restore.clear()
    await service.create()
    await until(lambda: bool(service.world.workers and service.world.workers[0].started))
    await service.kill()
    await service.open()
    service.world.may_restore.set()
    await service.run()
    assert len(service.world.workers) == 1


@simulated
async def test_a_worker_that_finished_meanwhile_finishes_the_job(service: Service) -> None:
    may_finish = asyncio.Event()

    async def finishes_later(worker: SimulatedWorker) -> int:
        await may_finish.wait()
        return await finishes(worker)

    service.world.scripts = [finishes_later]
    await run_then_kill(service)
    may_finish.set()
    await service.open()
    await service.end(StateName.FINISHED)
    assert len(service.world.workers) == 1


@simulated
async def test_a_worker_that_failed_meanwhile_is_recovered_in_place(service: Service) -> None:
    may_fail = asyncio.Event()

    async def fails_later(worker: SimulatedWorker) -> int | None:
        if len(worker.started) > 1:
            return await works(worker)
        await may_fail.wait()
        return await fails_and_stays(worker)

    service.world.scripts = [fails_later]
    await run_then_kill(service)
    may_fail.set()
    await service.open()
    await until(lambda: "Recovering" in service.visited())
    await service.run()
    assert origins(service) == ["started", "adopted", "in_place"]


@pytest.mark.parametrize("calls", [1, 2])
@simulated
async def test_a_short_outage_of_storage_does_not_end_the_worker(
    service: Service, calls: int
) -> None:
    await run_then_kill(service)
    service.storage.failing_calls = calls
    await service.open()
    await service.run()
    assert len(service.world.workers) == 1


# ---------------------------------------------------------------- refused


@simulated
async def test_a_worker_with_a_wrong_token_is_dismissed(service: Service) -> None:
    worker = await run_then_kill(service)
    change_worker_on_record(service, token_digest="0" * 64)
    await service.open()
    await until(lambda: not worker.is_alive)
    await service.run()
    assert origins(service) == ["started", "started"]


@simulated
async def test_a_worker_of_another_generation_than_on_record_is_dismissed(
    service: Service,
) -> None:
    worker = await run_then_kill(service)
    change_worker_on_record(service, generation=Generation(7))
    await service.open()
    await until(lambda: not worker.is_alive)
    await service.run()
    assert (await service.status()).generation == 2


@simulated
async def test_a_fenced_worker_is_killed(service: Service) -> None:
    worker = await run_then_kill(service)
    backend = StateBackend(ObjectStore(str(service.folder / "state")), JOB)
    backend.claim_generation(SystemClock().now())
    await service.open()
    await until(lambda: not worker.is_alive)
    await service.run()
    assert (await service.status()).generation == 3
    assert origins(service) == ["started", "started"]


@simulated
async def test_a_worker_that_died_meanwhile_is_replaced_at_once(service: Service) -> None:
    service.settings["controller.adopt_timeout"] = "1m"
    worker = await run_then_kill(service)
    worker.kill()
    await until(lambda: not worker.is_alive)
    began = time.monotonic()
    await service.open()
    await service.run()
    assert time.monotonic() - began < 30
    (failure,) = service.of("failure")
    assert failure["kind"] == "controller_lost"


@simulated
async def test_a_worker_that_does_not_reconnect_is_killed_at_the_deadline(service: Service) -> None:
    worker = await run_then_kill(service)
    worker.freeze()
    await service.open()
    await until(lambda: not worker.is_alive)
    await service.run()
    assert origins(service) == ["started", "started"]


@simulated
async def test_a_worker_that_dies_while_it_is_waited_for_is_replaced(service: Service) -> None:
    service.settings["controller.adopt_timeout"] = "1m"
    worker = await run_then_kill(service)
    worker.freeze()
    await service.open()
    await asyncio.sleep(0.1)
    worker.kill()
    await service.run()
    assert len(service.world.workers) == 2


@simulated
async def test_a_worker_whose_job_was_deleted_is_killed(service: Service) -> None:
    worker = await run_then_kill(service)
    await service.open()
    await service.controller.delete(JOB, with_state=True)
    await service.gone()
    assert not worker.is_alive


# ---------------------------------------------------------------- what was decided before


@simulated
async def test_a_forced_stop_does_not_wait_for_an_adopted_worker(service: Service) -> None:
    service.settings["controller.adopt_timeout"] = "1m"
    worker = await run_then_kill(service)
    worker.freeze()
    await service.open()
    began = time.monotonic()
    await service.controller.stop(JOB, StopMode.FORCE)
    await service.end(StateName.STOPPED)
    assert time.monotonic() - began < 30


@simulated
async def test_a_failed_job_is_not_restarted_by_the_next_controller(
    service: Service,
) -> None:
    service.world.scripts = [fails_for_good, works]
    hold = service.hold(StateName.FAILING)
    await service.create()
    await hold.reached()
    service.world.may_die.clear()
    hold.release()
    await until(lambda: service.world.dying > 0)
    await service.kill()
    service.world.may_die.set()
    await service.open()
    async with asyncio.timeout(3):
        await service.end(StateName.FAILED)
    failure = (await service.status()).failure
    assert failure is not None
    assert failure["first_fault"] == "line 3 is not JSON"
