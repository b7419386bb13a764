"""Faults and requests in random order: whatever happened, a job reaches its last desired state."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.unit.control.service_harness import JOB, Service, simulated
from tests.unit.control.simulated_workers import fails, fails_and_stays, ignores_orders, works

from resurgence.control.jobs.job_record import StopMode, Wanted
from resurgence.control.jobs.transitions import StateName
from resurgence.errors import StorageError
from resurgence.ids import NO_EPOCH

STEPS = 12
SEEDS = range(6)


async def ask(service: Service, rng: random.Random) -> None:
    """One request; a database that is away refuses it."""
    controller = service.controller
    try:
        match rng.choice(["stop", "start", "restart", "force", "reset", "rescale", "roll back"]):
            case "stop":
                await controller.stop(JOB, rng.choice(list(StopMode)))
            case "start":
                await controller.start(JOB)
            case "restart":
                await controller.restart(JOB, force=False, without_state=False)
            case "force":
                await controller.restart(JOB, force=True, without_state=False)
            case "reset":
                await controller.restart(JOB, force=False, without_state=True)
            case "roll back":
                await controller.rollback(JOB, NO_EPOCH, accept_duplicates=False)
            case "rescale":
                await controller.rescale(JOB, rng.randint(1, 5))
    except StorageError:
        return


async def fault(service: Service, rng: random.Random) -> None:
    alive = service.world.alive
    match rng.choice(["kill", "freeze", "storage", "database", "controller"]):
        case "kill" if alive:
            rng.choice(alive).kill()
        case "freeze" if alive:
            rng.choice(alive).freeze()
        case "storage":
            service.storage.failing_calls = rng.choice([1, 3, 8])
        case "database":
            service.database.failing_calls = rng.choice([1, 3, 8])
        case "controller":
            await service.kill()
            await asyncio.sleep(rng.choice([0, 0.1]))
            await service.open()


@pytest.mark.parametrize("seed", SEEDS)
@simulated
async def test_a_job_reaches_the_last_desired_state_after(service: Service, seed: int) -> None:
    rng = random.Random(seed)
    service.settings["pipeline.allowed_restarts"] = "1000"
    service.world.scripts = [
        *(
            rng.choice([works, works, works, ignores_orders, fails, fails_and_stays])
            for _ in range(STEPS)
        ),
        works,
    ]
    await service.create()
    for _ in range(STEPS):
        await rng.choice([ask, fault])(service, rng)
        await asyncio.sleep(rng.choice([0, 0.01, 0.1, 0.3]))
    service.storage.failing_calls = service.database.failing_calls = 0
    service.world.scripts = [works]
    record = await service.record()
    if record.desired.wanted is Wanted.STOPPED:
        # One that could not be brought to run is at its end, too.
        while record.status.state not in (StateName.STOPPED, StateName.FAILED):
            await asyncio.sleep(0.01)
            record = await service.record()
        await service.end(record.status.state)
        await service.controller.start(JOB)
    elif record.status.state in (StateName.FAILED, StateName.FAILING):
        await service.controller.start(JOB)
    await service.run()
    record = await service.record()
    assert record.status.state is StateName.RUNNING
    assert (record.status.run, record.status.parallelism) == (
        record.desired.run,
        record.desired.parallelism,
    )
    assert len(service.world.alive) == 1
