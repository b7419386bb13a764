"""A keeper reconciles its job with the desired state: resets happen once, crash loops end, jobs do
not affect each other, and jobs outlive their controller.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.control.faulty_stores import Hold, until
from tests.unit.control.service_harness import JOB, Service, simulated
from tests.unit.control.simulated_workers import (
    fails,
    fails_and_stays,
    fails_in_storage,
    finishes,
    ignores_orders,
    works,
)

from resurgence.control.jobs import owned_jobs, supervisor
from resurgence.control.jobs.job_record import StopMode, Wanted
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.events import Event
from resurgence.ids import JobName

OTHER = JobName("trips")
AT_ONCE = 20.0
"""Seconds: much less than what the other way would take, and enough for a busy machine."""
LONG = timedelta(hours=1)


async def restart(service: Service, *, force: bool = False, without_state: bool = False) -> None:
    await service.controller.restart(JOB, force=force, without_state=without_state)


def rollbacks(service: Service) -> int:
    return len(list(service.folder.glob("state/rides/rollbacks/*.json")))


# ---------------------------------------------------------------- restart without state


@simulated
async def test_a_restart_without_state_happens_once(service: Service) -> None:
    await service.create()
    await service.run()
    await restart(service, without_state=True)
    await service.run()
    assert rollbacks(service) == len(service.of("reset")) == 1
    await restart(service)
    await service.run()
    service.world.alive[0].kill()
    await until(lambda: len(service.world.workers) == 4)
    await service.run()
    assert rollbacks(service) == 1


@pytest.mark.parametrize(
    "state",
    [None, StateName.RESTARTING, StateName.COMPILING, StateName.SCHEDULING, StateName.RUNNING],
)
@simulated
async def test_a_restart_without_state_happens_once_though_the_controller_is_killed(
    service: Service, state: StateName | None
) -> None:
    await service.create()
    await service.run()
    hold = service.hold(state) if state else None
    await restart(service, without_state=True)
    if hold is not None:
        await hold.reached()
    await service.kill()
    await service.open()
    await service.run()
    assert rollbacks(service) == 1
    stored = service.stored()
    assert stored is not None
    assert stored.status.reset_run == stored.desired.reset_run == 2


@simulated
async def test_a_reset_is_not_repeated_after_an_outage_of_the_database(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_CATCH_UP", LONG)
    service.world.scripts = [works, finishes, works]
    await service.create()
    await service.run()
    hold = service.hold(StateName.RESTARTING)
    await restart(service, without_state=True)
    await hold.reached()
    service.database.failing_calls = 10_000
    hold.release()
    await service.reach(StateName.FINISHED)
    service.database.failing_calls = 0
    await service.controller.start(JOB)
    await service.run()
    assert rollbacks(service) == 1


# ---------------------------------------------------------------- crash loops and the budget


@simulated
async def test_a_crash_loop_escalates_from_the_same_worker_to_a_new_one_to_a_diagnosis(
    service: Service,
) -> None:
    service.world.scripts = [fails_and_stays]
    await service.create()
    await service.end(StateName.FAILED)
    assert [each["origin"] for each in service.of("worker_started")] == [
        "started",
        "in_place",
        "started",
    ]
    stored = service.stored()
    assert stored is not None
    failure = stored.status.failure
    assert failure is not None
    assert failure["times"] == 3
    assert failure["tried"] == ["restarted in the same worker", "restarted with a new worker"]
    assert (failure["first_fault"], failure["what_to_do"]) == ("a task failed", "fix it")
    assert "3 times without progress" in str(failure["reason"])


@simulated
async def test_a_worker_that_cannot_continue_is_not_restarted_in_place(service: Service) -> None:
    service.world.scripts = [fails]
    await service.create()
    await service.end(StateName.FAILED)
    assert [each["origin"] for each in service.of("worker_started")] == ["started"] * 3


@simulated
async def test_a_worker_that_failed_once_restarts_in_place(service: Service) -> None:
    tries = iter([fails_and_stays, works])
    service.world.scripts = [lambda worker: next(tries)(worker)]
    await service.create()
    await until(lambda: bool(service.of("incident")))
    await service.run()
    (worker,) = service.world.workers
    assert [each.plan.generation for each in worker.started] == [1, 2]
    (incident,) = service.of("incident")
    assert incident["attempts"] == 1


@simulated
async def test_a_worker_that_dies_while_it_waits_for_a_restart_in_place_is_replaced(
    service: Service,
) -> None:
    service.world.scripts = [fails_and_stays, works]
    hold = service.hold(StateName.RECOVERING)
    await service.create()
    await hold.reached()
    service.world.workers[0].kill()
    hold.release()
    await service.run()
    assert [each["origin"] for each in service.of("worker_started")] == ["started", "started"]


@simulated
async def test_the_restart_budget_bounds_an_outage_and_a_start_resets_it(
    service: Service,
) -> None:
    service.world.scripts = [fails_in_storage]
    await service.create(allowed_restarts="4")
    await service.end(StateName.FAILED)
    assert len(service.world.workers) == 5
    assert "all 4 restarts are used up" in (await service.status()).cause
    await service.controller.start(JOB)
    await until(lambda: len(service.world.workers) == 10)
    await service.end(StateName.FAILED)


async def fail_twice(service: Service) -> Hold:
    """A job at the door of its second recovery."""
    service.world.scripts = [fails]
    first = service.hold(StateName.RECOVERING)
    await service.create()
    await first.reached()
    second = service.hold(StateName.RECOVERING)
    first.release()
    await second.reached()
    return second


async def fail_for_the_third_time(service: Service, workers: int) -> None:
    await service.open()
    await service.end(StateName.FAILED)
    failure = (await service.status()).failure
    assert failure is not None
    assert failure["times"] == 3
    assert len(service.world.workers) == workers


@simulated
async def test_the_next_controller_continues_the_count_of_a_crash_loop(service: Service) -> None:
    hold = await fail_twice(service)
    at_scheduling = service.hold(StateName.SCHEDULING)
    hold.release()
    await at_scheduling.reached()
    await service.kill()
    await fail_for_the_third_time(service, workers=3)


@simulated
async def test_the_count_of_a_crash_loop_continues_though_a_worker_is_on_record(
    service: Service,
) -> None:
    hold = await fail_twice(service)
    service.world.may_restore.clear()
    hold.release()
    await until(lambda: len(service.world.workers) == 3 and bool(service.world.workers[2].started))
    await service.kill()
    service.world.workers[2].kill()
    service.world.may_restore.set()
    await fail_for_the_third_time(service, workers=4)


# ---------------------------------------------------------------- what is on record


@simulated
async def test_a_delayed_write_of_an_ended_run_does_not_hide_the_next_run(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_CATCH_UP", timedelta(milliseconds=500))
    await service.create()
    await service.run()
    hold = service.hold(StateName.STOPPING)
    await service.controller.stop(JOB, StopMode.FORCE)
    await hold.reached()
    service.database.failing_calls = 10_000
    hold.release()
    await service.reach(StateName.STOPPED)
    service.database.failing_calls = 0
    await service.controller.start(JOB)
    await service.run()
    await asyncio.sleep(0.7)
    stored = service.stored()
    assert stored is not None
    assert stored.status.state is StateName.RUNNING


@simulated
async def test_the_end_of_a_job_is_written_when_the_database_answers_again(
    service: Service,
) -> None:
    await service.create()
    await service.run()
    hold = service.hold(StateName.STOPPING)
    await service.controller.stop(JOB, StopMode.FORCE)
    await hold.reached()
    service.database.failing_calls = 10_000
    hold.release()
    await service.reach(StateName.STOPPED)
    service.database.failing_calls = 0
    await service.end(StateName.STOPPED)


# ---------------------------------------------------------------- one job and another


@simulated
async def test_a_hung_storage_of_one_job_delays_no_other(service: Service) -> None:
    service.storage.hangs_for = JOB
    await service.create()
    for _ in range(12):
        await restart(service, force=True)
    await until(lambda: service.storage.hanging > 0)
    began = time.monotonic()
    await service.create(OTHER)
    await service.run(OTHER)
    await service.controller.stop(OTHER, StopMode.CHECKPOINT)
    await service.end(StateName.STOPPED, OTHER)
    await service.controller.start(OTHER)
    await service.run(OTHER)
    await service.controller.restart(OTHER, force=False, without_state=False)
    await service.run(OTHER)
    assert time.monotonic() - began < AT_ONCE
    assert (await service.status()).state is not StateName.RUNNING


@pytest.mark.parametrize("state", [StateName.CREATED, StateName.RECOVERING, StateName.RESTARTING])
@simulated
async def test_a_hung_storage_call_ends_at_the_deadline_of_its_state(
    service: Service, state: StateName
) -> None:
    if state is not StateName.CREATED:
        await service.create()
        await service.run()
    service.storage.hangs_for = JOB
    match state:
        case StateName.CREATED:
            await service.create()
        case StateName.RECOVERING:
            service.world.workers[0].kill()
        case StateName.RESTARTING:
            await restart(service)
    await until(
        lambda: any(
            each["from"] == state and "took longer than" in str(each["reason"])
            for each in service.of("state")
        )
    )
    service.storage.repair()
    await service.run()


@simulated
async def test_a_job_that_cannot_be_defined_any_more_fails_alone(service: Service) -> None:
    await service.create()
    await service.create(OTHER)
    await service.run()
    await service.run(OTHER)
    await service.kill()
    store = MetadataStore(service.folder / "metadata.db")
    record = store.job(JOB)
    assert record is not None
    store.put_job(replace(record, pipeline=replace(record.pipeline, settings={"no.such": "key"})))
    store.close()
    await service.open()
    await service.end(StateName.FAILED)
    assert "no.such" in (await service.status()).cause
    await service.run(OTHER)
    # The worker of the first run is no longer expected.
    await until(lambda: len(service.world.alive) == 1)


# ---------------------------------------------------------------- the end of a controller


@simulated
async def test_a_close_stops_at_a_checkpoint_and_the_next_controller_continues(
    service: Service,
) -> None:
    await service.create()
    await service.create(OTHER)
    await service.run()
    await service.run(OTHER)
    await service.controller.stop(OTHER, StopMode.CHECKPOINT)
    await service.end(StateName.STOPPED, OTHER)
    await service.close()
    assert not service.world.alive
    assert service.world.workers[0].stop_asked.is_set()
    stored = service.stored()
    assert stored is not None
    assert (stored.status.state, stored.desired.wanted) == (StateName.STOPPED, Wanted.RUNNING)
    await service.open()
    await service.run()
    assert (await service.status(OTHER)).state is StateName.STOPPED
    assert service.of("failure") == []


@simulated
async def test_the_last_events_are_written_before_a_controller_ends(service: Service) -> None:
    await service.create()
    await service.run()
    await service.close()
    store = MetadataStore(service.folder / "metadata.db")
    stored = [each.event for each in store.events(JOB)]
    store.close()
    assert stored == [event for _, event in service.seen]


@simulated
async def test_a_forced_close_does_not_wait_for_an_unresponsive_worker(service: Service) -> None:
    service.world.scripts = [ignores_orders]
    await service.create(stop_timeout="1m")
    await service.run()
    closing = asyncio.create_task(service.close())
    await service.world.workers[0].stop_asked.wait()
    assert not closing.done()
    began = time.monotonic()
    service.controller.hurry()
    await closing
    assert time.monotonic() - began < AT_ONCE
    assert not service.world.alive


@pytest.mark.parametrize(
    "wish",
    ["run", "delete"],
)
@simulated
async def test_a_close_does_not_wait_for_hung_storage(service: Service, wish: str) -> None:
    await service.create()
    await service.run()
    service.storage.hangs_for = JOB
    if wish == "delete":
        await service.controller.delete(JOB, with_state=True)
    else:
        service.world.workers[0].kill()
    await until(lambda: service.storage.hanging > 0)
    async with asyncio.timeout(3):
        await service.close()


@simulated
async def test_the_starts_of_jobs_are_spread(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread = 0.2
    monkeypatch.setattr(owned_jobs, "_SPREAD", timedelta(seconds=spread))
    names = [JobName(f"job-{n}") for n in range(4)]
    for name in names:
        await service.create(name)
        await service.run(name)
    await service.close()
    began_at: dict[JobName, float] = {}

    def note(job: JobName, event: Event) -> None:
        if event.get("to") == StateName.COMPILING:
            began_at.setdefault(job, time.monotonic())

    service.on_event = note
    await service.open()
    for name in names:
        await service.run(name)
    assert max(began_at.values()) - min(began_at.values()) >= 2.5 * spread


@simulated
async def test_a_request_does_not_wait_for_the_turn_of_its_job(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.create(JobName("a-first"))
    await service.create()
    await service.run()
    await service.close()
    monkeypatch.setattr(owned_jobs, "_SPREAD", LONG)
    await service.open()
    await restart(service)
    await service.run()
