"""Every state has a deadline and watches its worker: each is combined with each failure. No job
hangs, none loses a request, none ends in a wrong state, and the database agrees in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.control.faulty_stores import LOOK_SECONDS, Hold, until
from tests.unit.control.service_harness import JOB, Service, simulated
from tests.unit.control.simulated_workers import (
    SimulatedWorker,
    fails_for_good,
    finishes,
    works,
)

from resurgence.control.jobs.job_record import StopMode
from resurgence.control.jobs.transitions import TERMINAL, StateName

STATES = [each for each in StateName if each not in TERMINAL]
FROM_RUNNING = (
    StateName.CHECKPOINT_STOPPING,
    StateName.STOPPING,
    StateName.RECOVERING,
    StateName.RESCALING,
    StateName.RESTARTING,
)
WAIT_FOR_LAST_EPOCH = (StateName.CHECKPOINT_STOPPING, StateName.RESCALING, StateName.RESTARTING)
WAIT_FOR_DEATH = (
    StateName.STOPPING,
    StateName.FINISHING,
    StateName.RECOVERING,
    StateName.FAILING,
)
INSTANT = (StateName.CREATED, StateName.COMPILING)
"""States that wait only for storage."""
ENDS = {
    StateName.CHECKPOINT_STOPPING: StateName.STOPPED,
    StateName.STOPPING: StateName.STOPPED,
    StateName.FINISHING: StateName.FINISHED,
    StateName.FAILING: StateName.FAILED,
}
"""What a job comes to from these states; from the others it runs, unless it is stopped."""

PATIENT = {"pipeline.start_timeout": "1h", "pipeline.stop_timeout": "1h"}

FaultSwitch = Callable[[Service], Awaitable[None]]


async def enter(service: Service, state: StateName) -> Hold:
    """Bring the job to the door of a state."""
    hold = service.hold(state)
    if state is StateName.FINISHING:
        service.world.scripts = [finishes]
    if state is StateName.FAILING:
        service.world.scripts = [fails_for_good]
    await service.create()
    if state in FROM_RUNNING:
        await service.run()
        match state:
            case StateName.CHECKPOINT_STOPPING:
                await service.controller.stop(JOB, StopMode.CHECKPOINT)
            case StateName.STOPPING:
                await service.controller.stop(JOB, StopMode.FORCE)
            case StateName.RECOVERING:
                service.world.workers[0].kill()
            case StateName.RESCALING:
                await service.controller.rescale(JOB, 3)
            case StateName.RESTARTING:
                await service.controller.restart(JOB, force=False, without_state=False)
    await hold.reached()
    return hold


async def stay_inside(service: Service, state: StateName) -> Hold:
    """Bring the job into the midst of a state's work, and keep it there: its worker does not do what
    the state waits for.
    """
    world = service.world
    if state is StateName.SCHEDULING:
        world.may_restore.clear()
    if state in WAIT_FOR_LAST_EPOCH:
        world.may_stop.clear()
    hold = await enter(service, state)
    if state in WAIT_FOR_DEATH:
        world.may_die.clear()
    hold.release()
    if state is StateName.SCHEDULING:
        await until(lambda: bool(world.workers and world.workers[0].started))
    if state in WAIT_FOR_LAST_EPOCH:
        await world.workers[0].stop_asked.wait()
    if state in WAIT_FOR_DEATH:
        await until(lambda: world.dying > 0)
    return hold


async def converge(service: Service, state: StateName, end: StateName | None) -> None:
    """The job comes to this end; None: it runs."""
    service.world.open_gates()
    if end is not None:
        await service.end(end)
    else:
        await service.run()
        parallelism = 3 if state is StateName.RESCALING else 2
        assert (await service.status()).parallelism == parallelism


def fail_worker(service: Service, what: Callable[[SimulatedWorker], None]) -> None:
    """To the worker that there is, or else to the next one."""
    if service.world.alive:
        what(service.world.alive[0])
    else:
        service.world.befalls_next = what


async def worker_is_killed(service: Service) -> None:
    fail_worker(service, SimulatedWorker.kill)


async def worker_freezes(service: Service) -> None:
    fail_worker(service, SimulatedWorker.freeze)


def storage_fails(calls: int) -> FaultSwitch:
    async def begin(service: Service) -> None:
        service.storage.failing_calls = calls

    return begin


def database_fails(calls: int) -> FaultSwitch:
    async def begin(service: Service) -> None:
        service.database.failing_calls = calls

    return begin


TROUBLES = {
    "worker killed": worker_is_killed,
    "worker frozen": worker_freezes,
    **{f"storage fails {n} times": storage_fails(n) for n in (1, 3, 20)},
    **{f"database fails {n} times": database_fails(n) for n in (1, 3, 20)},
}
SHORT_OUTAGES = [f"{store} fails {n} times" for store in ("storage", "database") for n in (1, 3)]
PLACES = [
    *((state, enter) for state in STATES),
    *((state, stay_inside) for state in STATES if state not in INSTANT),
]
at_every_place = pytest.mark.parametrize(
    ("state", "arrive"), PLACES, ids=[f"{state}-{arrive.__name__}" for state, arrive in PLACES]
)


Arrive = Callable[[Service, StateName], Awaitable[Hold]]


@pytest.mark.parametrize(
    ("fault", "state", "arrive"),
    [
        pytest.param(fault, state, arrive, id=f"{fault}-{state}-{arrive.__name__}")
        for fault in TROUBLES
        for state, arrive in PLACES
        if arrive is enter or fault not in SHORT_OUTAGES
    ],
)
@simulated
async def test_a_job_reaches_its_desired_state_through(
    service: Service, fault: str, state: StateName, arrive: Arrive
) -> None:
    hold = await arrive(service, state)
    await TROUBLES[fault](service)
    hold.release()
    await converge(service, state, ENDS.get(state))


@at_every_place
@pytest.mark.parametrize("mode", [StopMode.CHECKPOINT, StopMode.FORCE])
@simulated
async def test_a_stop_is_honoured_in(
    service: Service, state: StateName, arrive: Arrive, mode: StopMode
) -> None:
    if mode is StopMode.FORCE:
        service.settings.update(PATIENT)
    hold = await arrive(service, state)
    await service.controller.stop(JOB, mode)
    hold.release()
    if mode is StopMode.FORCE:
        # The worker still does not do what the state waits for.
        service.world.may_die.set()
        await service.end(ENDS.get(state, StateName.STOPPED))
    else:
        await converge(service, state, ENDS.get(state, StateName.STOPPED))


@at_every_place
@simulated
async def test_a_restart_is_honoured_in(service: Service, state: StateName, arrive: Arrive) -> None:
    hold = await arrive(service, state)
    service.world.scripts = [works]
    await service.controller.restart(JOB, force=False, without_state=False)
    hold.release()
    await converge(service, state, None)
    assert (await service.status()).run == (3 if state is StateName.RESTARTING else 2)


@at_every_place
@simulated
async def test_a_delete_is_honoured_in(service: Service, state: StateName, arrive: Arrive) -> None:
    hold = await arrive(service, state)
    await service.controller.delete(JOB, with_state=True)
    hold.release()
    service.world.open_gates()
    await service.gone()
    assert service.stored() is None
    assert not service.world.alive
    assert not list(service.folder.glob("state/rides/**/*.json"))


@at_every_place
@pytest.mark.parametrize("asked", ["nothing", "stop", "restart"])
@simulated
async def test_the_next_controller_continues_after_one_killed_in(
    service: Service, state: StateName, arrive: Arrive, asked: str
) -> None:
    """A request that was answered just before is stored, and is honoured."""
    await arrive(service, state)
    if asked == "stop":
        await service.controller.stop(JOB, StopMode.CHECKPOINT)
    if asked == "restart":
        service.world.scripts = [works]
        await service.controller.restart(JOB, force=False, without_state=False)
    await service.kill()
    await service.open()
    ends = {"nothing": ENDS.get(state), "stop": StateName.STOPPED, "restart": None}
    end = ends[asked]
    if asked == "stop" and state is StateName.FAILING:
        service.world.open_gates()
        # Whether it was on record that the job had failed is a matter of the instant.
        while (end := (await service.status()).state) not in TERMINAL:
            await asyncio.sleep(LOOK_SECONDS)
        assert end is not StateName.FINISHED
    await converge(service, state, end)
