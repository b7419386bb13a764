"""Troubles and requests in any order: whatever has happened, a job comes to what was wanted last."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.unit.control.living_workers import fails, fails_and_stays, is_deaf, works
from tests.unit.control.service_harness import JOB, Service, played

from resurgence.control.jobs.job_record import StopMode, Wanted
from resurgence.control.jobs.transitions import StateName
from resurgence.errors import StorageError
from resurgence.ids import NO_EPOCH

STEPS = 12
SEEDS = range(6)


async def ask(service: Service, dice: random.Random) -> None:
    """One request; a database that is away refuses it."""
    controller = service.controller
    try:
        match dice.choice(["stop", "start", "restart", "force", "reset", "rescale", "roll back"]):
            case "stop":
                await controller.stop(JOB, dice.choice(list(StopMode)))
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
                await controller.rescale(JOB, dice.randint(1, 5))
    except StorageError:
        return


async def trouble(service: Service, dice: random.Random) -> None:
    alive = service.world.alive
    match dice.choice(["kill", "freeze", "storage", "database", "controller"]):
        case "kill" if alive:
            dice.choice(alive).kill()
        case "freeze" if alive:
            dice.choice(alive).freeze()
        case "storage":
            service.storage.failing_calls = dice.choice([1, 3, 8])
        case "database":
            service.database.failing_calls = dice.choice([1, 3, 8])
        case "controller":
            await service.kill()
            await asyncio.sleep(dice.choice([0, 0.1]))
            await service.open()


@pytest.mark.parametrize("seed", SEEDS)
@played
async def test_a_job_reaches_the_last_desired_state_after(service: Service, seed: int) -> None:
    dice = random.Random(seed)
    service.settings["pipeline.allowed_restarts"] = "1000"
    service.world.scripts = [
        *(
            dice.choice([works, works, works, is_deaf, fails, fails_and_stays])
            for _ in range(STEPS)
        ),
        works,
    ]
    await service.create()
    for _ in range(STEPS):
        await dice.choice([ask, trouble])(service, dice)
        await asyncio.sleep(dice.choice([0, 0.01, 0.1, 0.3]))
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
