"""Requests to a controller: validated, stored, answered at once, and reconciled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.unit.control.faulty_stores import until
from tests.unit.control.service_harness import JOB, SQL, Service, simulated
from tests.unit.control.simulated_workers import (
    fails,
    fails_for_good,
    finishes,
    ignores_orders,
    works,
)

from resurgence.control.controller import Controller, NewJob
from resurgence.control.jobs.job_record import JobBeingDeleted, StopMode, Wanted
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import JobExists, NoSuchJob
from resurgence.errors import ConfigError, SqlError, StorageError
from resurgence.ids import JobName

OTHER = JobName("trips")
AT_ONCE = 20.0
"""Seconds: much less than what the other way would take, and enough for a busy machine."""
ANOTHER_SQL = SQL.replace("'10'", "'20'")
ACCEPTING = {"checkpoint.accept_state_loss": "true"}


async def restart(service: Service, *, force: bool = False, without_state: bool = False) -> None:
    await service.controller.restart(JOB, force=force, without_state=without_state)


def rollbacks(service: Service) -> int:
    return len(list(service.folder.glob("state/rides/rollbacks/*.json")))


# ---------------------------------------------------------------- create


@simulated
async def test_a_job_is_created_and_runs(service: Service) -> None:
    view = await service.controller.create(NewJob(JOB, SQL))
    assert view.record.status.state is StateName.CREATED
    await service.run()
    assert service.visited() == ["Compiling", "Scheduling", "Running"]


@simulated
async def test_a_paused_controller_does_not_time_out_its_workers(service: Service) -> None:
    """Its process was stopped, or its machine slept."""
    await service.create()
    await service.run()
    for _ in range(3):
        time.sleep(0.6)  # Longer than the heartbeat timeout; nothing else runs.
        await asyncio.sleep(0.3)
    assert service.visited() == ["Compiling", "Scheduling", "Running"]
    assert len(service.world.workers) == 1


@simulated
async def test_a_job_that_is_created_stopped_stays_so_until_it_is_started(
    service: Service,
) -> None:
    await service.controller.create(NewJob(JOB, SQL, start=False))
    await service.end(StateName.STOPPED)
    await service.controller.start(JOB)
    await service.run()


@simulated
async def test_a_name_that_is_taken_is_refused(service: Service) -> None:
    await service.create()
    with pytest.raises(JobExists):
        await service.create()
    await service.run()
    assert len(service.world.workers) == 1


@simulated
async def test_an_invalid_pipeline_is_refused_and_not_stored(service: Service) -> None:
    with pytest.raises(SqlError):
        await service.controller.create(NewJob(JOB, "CREATE TABLE"))
    with pytest.raises(ConfigError):
        await service.controller.create(NewJob(JOB, SQL, settings={"pipeline.speed": "9"}))
    assert await service.controller.jobs() == []
    assert service.stored() is None


@simulated
async def test_an_unknown_job_is_reported_with_the_existing_ones(service: Service) -> None:
    await service.create()
    with pytest.raises(NoSuchJob) as refused:
        await service.controller.stop(OTHER, StopMode.FORCE)
    assert JOB in refused.value.hint


# ---------------------------------------------------------------- stored, and answered at once


ASKED: dict[str, Callable[[Controller], Awaitable[object]]] = {
    "stop": lambda controller: controller.stop(JOB, StopMode.CHECKPOINT),
    "start": lambda controller: controller.start(JOB),
    "restart": lambda controller: controller.restart(JOB, force=False, without_state=True),
    "rescale": lambda controller: controller.rescale(JOB, 3),
    "edit": lambda controller: controller.edit(JOB, ANOTHER_SQL, None, dict(ACCEPTING)),
    "delete": lambda controller: controller.delete(JOB, with_state=True),
}


@pytest.mark.parametrize("asked", ASKED)
@simulated
async def test_a_request_is_stored_and_answered_while_the_job_is_stuck(
    service: Service, asked: str
) -> None:
    service.storage.hangs_for = JOB
    await service.create()
    await until(lambda: service.storage.hanging > 0)
    began = time.monotonic()
    await ASKED[asked](service.controller)
    assert time.monotonic() - began < AT_ONCE
    record, stored = await service.record(), service.stored()
    assert stored is not None
    assert (stored.desired, stored.pipeline) == (record.desired, record.pipeline)


@pytest.mark.parametrize("asked", ASKED)
@simulated
async def test_a_request_that_cannot_be_stored_is_refused_and_changes_nothing(
    service: Service, asked: str
) -> None:
    await service.create()
    await service.run()
    before = await service.record()
    if asked == "start":
        before = replace(before, desired=replace(before.desired, run=1))
    service.database.failing_calls = 10_000
    with pytest.raises(StorageError):
        await ASKED[asked](service.controller)
    service.database.failing_calls = 0
    after = await service.record()
    assert (after.desired, after.pipeline) == (before.desired, before.pipeline)
    assert after.status.state is StateName.RUNNING


@simulated
async def test_requests_at_the_same_time_are_all_kept(service: Service) -> None:
    await service.create()
    await service.run()
    await asyncio.gather(
        *(restart(service) for _ in range(5)), *(service.controller.rescale(JOB, n) for n in (3, 4))
    )
    desired = (await service.record()).desired
    assert (desired.run, desired.parallelism) == (6, 4)
    await service.run()


@simulated
async def test_the_last_of_many_requests_applies(service: Service) -> None:
    await service.create()
    await service.run()
    await service.controller.stop(JOB, StopMode.CHECKPOINT)
    await service.controller.start(JOB)
    await service.controller.stop(JOB, StopMode.FORCE)
    await service.controller.start(JOB)
    await service.run()
    await restart(service)
    await service.controller.stop(JOB, StopMode.CHECKPOINT)
    await service.end(StateName.STOPPED)


# ---------------------------------------------------------------- stop, start, restart


@pytest.mark.parametrize("mode", list(StopMode))
@simulated
async def test_a_stopped_job_starts_again_in_another_generation(
    service: Service, mode: StopMode
) -> None:
    await service.create()
    await service.run()
    await service.controller.stop(JOB, mode)
    await service.end(StateName.STOPPED)
    assert service.world.workers[0].stop_asked.is_set() is (mode is StopMode.CHECKPOINT)
    await service.controller.start(JOB)
    await service.run()
    status = await service.status()
    assert (status.run, status.generation) == (2, 2)


@simulated
async def test_a_start_of_a_job_that_runs_changes_nothing(service: Service) -> None:
    await service.create()
    await service.run()
    await service.controller.start(JOB)
    await asyncio.sleep(0.2)
    await service.run()
    assert len(service.world.workers) == 1


@pytest.mark.parametrize("state", [StateName.FAILED, StateName.FINISHED])
@simulated
async def test_a_job_at_its_end_is_started_again(service: Service, state: StateName) -> None:
    service.world.scripts = [finishes if state is StateName.FINISHED else fails_for_good, works]
    await service.create()
    await service.end(state)
    await service.controller.start(JOB)
    await service.run()
    assert (await service.status()).failure is None


@simulated
async def test_a_start_requested_while_the_job_is_failing_is_not_lost(
    service: Service,
) -> None:
    service.world.scripts = [fails_for_good, works]
    hold = service.hold(StateName.FAILING)
    await service.create()
    await hold.reached()
    await service.controller.start(JOB)
    hold.release()
    await service.run()


@simulated
async def test_a_stop_while_recovering_does_not_wait_for_the_backoff(service: Service) -> None:
    await service.create(initial_backoff="1m", maximal_backoff="1m")
    await service.run()
    # A first failure has no backoff.
    service.world.workers[0].kill()
    await until(lambda: len(service.world.workers) > 1)
    await service.run()
    service.world.workers[1].kill()
    await service.reach(StateName.RECOVERING)
    began = time.monotonic()
    await service.controller.stop(JOB, StopMode.CHECKPOINT)
    await service.end(StateName.STOPPED)
    assert time.monotonic() - began < AT_ONCE


@pytest.mark.parametrize("force", [False, True])
@simulated
async def test_a_restart_while_recovering_does_not_wait_for_the_backoff(
    service: Service, force: bool
) -> None:
    await service.create(initial_backoff="1m", maximal_backoff="1m")
    await service.run()
    # A first failure has no backoff.
    service.world.workers[0].kill()
    await until(lambda: len(service.world.workers) > 1)
    await service.run()
    service.world.workers[1].kill()
    await service.reach(StateName.RECOVERING)
    began = time.monotonic()
    await restart(service, force=force)
    await service.run()
    assert time.monotonic() - began < AT_ONCE


@simulated
async def test_a_forced_restart_does_not_wait_for_an_unresponsive_worker(service: Service) -> None:
    service.world.scripts = [ignores_orders, works]
    await service.create(stop_timeout="1m")
    await service.run()
    began = time.monotonic()
    await restart(service, force=True)
    await service.run()
    assert time.monotonic() - began < AT_ONCE
    assert not service.world.workers[0].stop_asked.is_set()


@simulated
async def test_force_overrides_a_restart_that_waits_for_an_unresponsive_worker(
    service: Service,
) -> None:
    service.world.scripts = [ignores_orders, works]
    await service.create(stop_timeout="1m")
    await service.run()
    await restart(service)
    await service.world.workers[0].stop_asked.wait()
    began = time.monotonic()
    await restart(service, force=True)
    await service.run()
    assert time.monotonic() - began < AT_ONCE


@simulated
async def test_a_restart_kills_an_unresponsive_worker_at_its_deadline(service: Service) -> None:
    service.world.scripts = [ignores_orders, works]
    await service.create(stop_timeout="200ms")
    await service.run()
    await restart(service)
    await service.run()
    assert len(service.world.workers) == 2


@simulated
async def test_a_restart_resets_the_failure_count(service: Service) -> None:
    service.world.scripts = [fails, fails, works]
    await service.create()
    await service.run()
    assert (await service.controller.job(JOB)).progress["restarts_left"] == 48
    await restart(service)
    await service.run()
    assert (await service.controller.job(JOB)).progress["restarts_left"] == 50


# ---------------------------------------------------------------- rescale and edit


@simulated
async def test_a_rescale_while_recovering_is_applied_by_the_recovery(service: Service) -> None:
    hold = service.hold(StateName.RECOVERING)
    await service.create()
    await service.run()
    service.world.workers[0].kill()
    await hold.reached()
    await service.controller.rescale(JOB, 5)
    hold.release()
    await service.run()
    assert "Rescaling" not in service.visited()
    assert service.world.workers[1].started[0].plan.parallelism == 5


@simulated
async def test_an_edit_resets_the_restart_budget(service: Service) -> None:
    service.world.scripts = [fails, works]
    await service.create()
    await service.run()
    assert (await service.controller.job(JOB)).progress["restarts_left"] == 49
    await service.controller.edit(JOB, SQL + ";", None, {})
    await service.run()
    assert (await service.controller.job(JOB)).progress["restarts_left"] == 50


@simulated
async def test_a_stopped_job_is_rescaled_when_it_starts(service: Service) -> None:
    await service.controller.create(NewJob(JOB, SQL, start=False))
    await service.controller.rescale(JOB, 5)
    await asyncio.sleep(0.1)
    assert not service.world.workers
    await service.controller.start(JOB)
    await service.run()
    assert service.world.workers[0].started[0].plan.parallelism == 5


def event_rates(service: Service) -> list[str]:
    return [
        each.started[-1].graph.sources()[0].options["event_rate"]
        for each in service.world.workers
        if each.started
    ]


@simulated
async def test_an_edited_job_continues_with_the_new_pipeline_after_a_checkpoint(
    service: Service,
) -> None:
    await service.create()
    await service.run()
    await service.controller.edit(JOB, ANOTHER_SQL, None, {"pipeline.parallelism": "3"})
    await service.run()
    assert event_rates(service) == ["10", "20"]
    assert service.world.workers[0].stop_asked.is_set()
    assert service.world.workers[1].started[0].plan.parallelism == 3


@simulated
async def test_an_edit_keeps_the_requested_parallelism(service: Service) -> None:
    await service.create()
    await service.controller.rescale(JOB, 4)
    await service.controller.edit(JOB, ANOTHER_SQL, None, {})
    await service.run()
    assert (await service.status()).parallelism == 4
    assert event_rates(service)[-1] == "20"


@simulated
async def test_an_edit_of_a_stopped_job_waits_for_its_start(service: Service) -> None:
    await service.controller.create(NewJob(JOB, SQL, start=False))
    await service.controller.edit(JOB, ANOTHER_SQL, None, {})
    await asyncio.sleep(0.1)
    assert not service.world.workers
    await service.controller.start(JOB)
    await service.run()
    assert event_rates(service) == ["20"]


@simulated
async def test_an_edit_while_recovering_is_applied_by_the_recovery(service: Service) -> None:
    hold = service.hold(StateName.RECOVERING)
    await service.create()
    await service.run()
    service.world.workers[0].kill()
    await hold.reached()
    await service.controller.edit(JOB, ANOTHER_SQL, None, {"pipeline.start_timeout": "1m"})
    hold.release()
    await service.run()
    assert event_rates(service) == ["10", "20"]


@simulated
async def test_an_edit_that_cannot_run_changes_nothing(service: Service) -> None:
    await service.create()
    await service.run()
    with pytest.raises(SqlError):
        await service.controller.edit(JOB, "SELECT", None, {})
    await service.run()
    record = await service.record()
    assert (record.pipeline.sql, record.desired.run) == (SQL, 1)
    assert len(service.world.workers) == 1


# ---------------------------------------------------------------- delete


@pytest.mark.parametrize("with_state", [False, True])
@simulated
async def test_a_running_job_is_deleted_with_its_state_if_requested(
    service: Service, with_state: bool
) -> None:
    await service.create()
    await service.run()
    view = await service.controller.delete(JOB, with_state=with_state)
    assert view.record.desired.wanted is Wanted.DELETED
    await service.gone()
    assert service.stored() is None
    assert not service.world.alive
    assert bool(list(service.folder.glob("state/rides/**/*.json"))) is not with_state


@pytest.mark.parametrize("with_state", [False, True])
@simulated
async def test_a_name_can_be_reused_once_the_job_is_deleted(
    service: Service, with_state: bool
) -> None:
    await service.create()
    await service.run()
    await service.controller.delete(JOB, with_state=with_state)
    await service.gone()
    await service.create()
    await service.run()
    assert (await service.status()).generation == (1 if with_state else 2)


@simulated
async def test_the_events_of_a_deleted_job_are_not_those_of_its_successor(
    service: Service,
) -> None:
    await service.create()
    await service.run()
    service.metadata.may_take_events.clear()
    await service.controller.delete(JOB, with_state=True)

    async def create_anew() -> None:
        await service.gone()
        await service.create()

    anew = asyncio.create_task(create_anew())
    await asyncio.wait([anew], timeout=1)
    service.metadata.may_take_events.set()
    await anew
    await service.run()
    async with asyncio.timeout(10):
        while not (events := await service.controller.events(JOB, after=0, limit=1)):
            await asyncio.sleep(0.02)
    assert [each.event["to"] for each in events] == ["Compiling"]


@simulated
async def test_a_name_can_be_reused_at_the_instant_the_job_is_deleted(service: Service) -> None:
    await service.create()
    await service.run()
    service.metadata.hold_after_delete()
    await service.controller.delete(JOB, with_state=True)
    await until(lambda: service.stored() is None)
    await service.create()
    service.metadata.release_delete()
    await asyncio.sleep(0.1)
    await service.run()


@simulated
async def test_a_job_that_is_being_deleted_accepts_no_other_request(service: Service) -> None:
    service.world.may_die.clear()
    await service.create()
    await service.run()
    await service.controller.delete(JOB, with_state=False)
    for asked in ("stop", "start", "restart", "rescale"):
        with pytest.raises(JobBeingDeleted):
            await ASKED[asked](service.controller)
    with pytest.raises(JobExists):
        await service.create()
    service.world.may_die.set()
    await service.gone()


@simulated
async def test_a_delete_is_retried_until_storage_is_available(service: Service) -> None:
    await service.create()
    await service.run()
    service.storage.failing_calls = 3
    await service.controller.delete(JOB, with_state=True)
    await service.gone()
    assert service.storage.failing_calls == 0
    assert not list(service.folder.glob("state/rides/**/*.json"))


@simulated
async def test_the_next_controller_completes_a_delete(service: Service) -> None:
    await service.create()
    await service.run()
    service.storage.failing_calls = 10_000
    await service.controller.delete(JOB, with_state=True)
    await until(lambda: service.visited()[-1] == "Stopped")
    await service.kill()
    service.storage.failing_calls = 0
    await service.open()
    await service.gone()
    assert not list(service.folder.glob("state/rides/**/*.json"))
