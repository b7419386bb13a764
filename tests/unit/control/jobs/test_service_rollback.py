"""A rollback in a service: validated at the request, performed once, for a running or a stopped
job.
"""

from __future__ import annotations

import pytest
from tests.unit.control.service_harness import JOB, SQL, Service, simulated
from tests.unit.control.simulated_workers import fails_for_good, finishes, ignores_orders, works
from tests.unit.state.sealed import seal

from resurgence.connectors.contract import SinkMemory
from resurgence.connectors.registry import CONNECTORS
from resurgence.connectors.terminal import BlackholeSink
from resurgence.control.jobs.job_record import StopMode
from resurgence.control.jobs.rollback_preview import RollbackRefused
from resurgence.control.jobs.transitions import StateName
from resurgence.ids import Epoch
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.storage.object_store import ObjectStore

GRAPH = compile_pipeline(SQL, CONNECTORS)


def state(service: Service) -> StateBackend:
    return StateBackend(ObjectStore(str(service.folder / "state")), JOB)


def seal_epochs(service: Service, *epochs: int) -> None:
    for epoch in epochs:
        seal(state(service), GRAPH, epoch)


async def roll_back(service: Service, to_epoch: int, **options: bool) -> None:
    accept = options.get("accept_duplicates", False)
    await service.controller.rollback(JOB, Epoch(to_epoch), accept_duplicates=accept)


def rollbacks(service: Service) -> list[tuple[int, int]]:
    return [(each.to_epoch, each.highest_epoch) for each in state(service).rollbacks()]


@simulated
async def test_a_running_job_is_rolled_back_and_resumes_from_there(service: Service) -> None:
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2, 3, 4)
    await roll_back(service, 2)
    await service.run()
    plan = service.world.workers[-1].started[-1].plan
    assert (plan.epoch, plan.next_epoch, plan.dead) == (2, 5, ((3, 4),))
    (event,) = service.of("rollback")
    assert (event["to_epoch"], event["highest_epoch"], event["run"]) == (2, 4, 2)
    assert not service.world.workers[0].stop_asked.is_set(), "its epoch would be undone anyway"


@simulated
async def test_epochs_that_only_a_sink_has_a_record_of_are_undone_with_the_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state was restored from an older copy."""
    memory = SinkMemory(newest=Epoch(9))
    monkeypatch.setattr(BlackholeSink, "recall", lambda *_: memory)
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2)
    preview = await service.controller.preview_rollback(JOB, Epoch(2))
    assert (preview.undone, preview.held) == (None, 9)
    await roll_back(service, 2)
    await service.run()
    assert rollbacks(service) == [(2, 9)]
    preview = await service.controller.preview_rollback(JOB, Epoch(2))
    assert preview.held is None, "they are dead already"
    assert service.world.workers[-1].started[-1].plan.next_epoch == 10


@simulated
async def test_an_unresponsive_worker_does_not_delay_a_rollback(
    service: Service,
) -> None:
    service.world.scripts = [ignores_orders, works]
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2)
    await roll_back(service, 1)
    await service.run()
    assert rollbacks(service) == [(1, 2)]


@simulated
async def test_a_stopped_job_is_rolled_back_and_stays_stopped(service: Service) -> None:
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2, 3)
    await service.controller.stop(JOB, StopMode.CHECKPOINT)
    await service.end(StateName.STOPPED)
    await roll_back(service, 1)
    await service.reach(StateName.CREATED)
    await service.end(StateName.STOPPED)
    assert rollbacks(service) == [(1, 3)]
    assert len(service.world.workers) == 1
    await service.controller.start(JOB)
    await service.run()
    assert service.world.workers[-1].started[-1].plan.epoch == 1
    assert rollbacks(service) == [(1, 3)]


@pytest.mark.parametrize("end", [StateName.FAILED, StateName.FINISHED])
@simulated
async def test_a_terminal_job_resumes_from_the_checkpoint_of_a_rollback(
    service: Service, end: StateName
) -> None:
    service.world.scripts = [
        works,
        finishes if end is StateName.FINISHED else fails_for_good,
        works,
    ]
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2)
    await service.controller.restart(JOB, force=True, without_state=False)
    await service.end(end)
    await roll_back(service, 1)
    await service.run()
    assert service.world.workers[-1].started[-1].plan.epoch == 1


@simulated
async def test_a_rollback_to_nothing_is_a_reset(service: Service) -> None:
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2)
    await roll_back(service, 0)
    await service.run()
    assert len(service.of("reset")) == 1
    assert rollbacks(service) == [(0, 2)]


@simulated
async def test_a_rollback_happens_once_though_the_controller_is_killed(service: Service) -> None:
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2)
    hold = service.hold(StateName.RESTARTING)
    await roll_back(service, 1)
    await hold.reached()
    await service.kill()
    await service.open()
    await service.run()
    assert rollbacks(service) == [(1, 2)]


@simulated
async def test_an_epoch_without_a_checkpoint_is_refused_and_the_job_runs_on(
    service: Service,
) -> None:
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2)
    with pytest.raises(RollbackRefused, match="cannot roll back to epoch 7") as refused:
        await roll_back(service, 7)
    assert "1, 2" in refused.value.hint
    await service.run()
    assert (await service.record()).desired.run == 1
    assert rollbacks(service) == []


@simulated
async def test_a_rollback_to_a_deleted_checkpoint_leaves_the_job_running(
    service: Service,
) -> None:
    """Retention may delete it between the request and the rollback."""
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2, 3)
    hold = service.hold(StateName.RESTARTING)
    await roll_back(service, 1)
    await hold.reached()
    backend = state(service)
    backend.store.delete(each.path for each in backend.store.list(f"{JOB}/epochs/0000000001"))
    hold.release()
    await service.run()
    (event,) = service.of("rollback_refused")
    assert "cannot roll back to epoch 1" in str(event["error"])
    assert service.world.workers[-1].started[-1].plan.epoch == 3
    assert rollbacks(service) == []


@simulated
async def test_the_preview_counts_what_is_undone_and_changes_nothing(service: Service) -> None:
    await service.create()
    await service.run()
    seal_epochs(service, 1, 2, 3, 4)
    preview = await service.controller.preview_rollback(JOB, Epoch(2))
    assert (preview.undone, preview.held) == ((3, 4), None)
    assert [(each.table, each.rows, each.retracts) for each in preview.sinks] == [
        ("nowhere", 6, True)
    ]
    assert [(each.operator, each.offset, each.rows) for each in preview.sources] == [
        ("source-ticks", {"counter": 20}, 20)
    ]
    assert (await service.record()).desired.run == 1


@simulated
async def test_a_sink_that_cannot_retract_requires_accepted_duplicates(
    service: Service,
) -> None:
    sql = SQL.replace("'blackhole'", "'stdout'")
    await service.create()
    await service.controller.edit(JOB, sql, None, {"checkpoint.accept_state_loss": "true"})
    await service.run()
    seal_epochs(service, 1, 2)
    with pytest.raises(RollbackRefused, match="nowhere cannot retract"):
        await roll_back(service, 1)
    await roll_back(service, 1, accept_duplicates=True)
    await service.run()
    assert rollbacks(service) == [(1, 2)]
