"""An edit that would lose state is refused when it is requested, and the job continues."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.unit.control.service_harness import JOB, Service, simulated
from tests.unit.state.sealed import seal

from resurgence.connectors.registry import CONNECTORS
from resurgence.control import controller
from resurgence.control.controller import NewJob
from resurgence.control.jobs.job_record import StopMode
from resurgence.control.jobs.transitions import StateName
from resurgence.errors import IncompatibleState, StorageError
from resurgence.graph.model import Graph
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.storage.object_store import ObjectStore

TABLES = """CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE nowhere WITH (connector = 'blackhole');
CREATE TABLE other WITH (connector = 'blackhole');
"""
WINDOW = "SELECT tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM ticks GROUP BY w"
SQL = f"{TABLES}INSERT INTO nowhere {WINDOW};"
WIDER = SQL.replace("1 minute", "2 minutes")
WITH_SINK = f"{SQL}INSERT INTO other SELECT counter FROM ticks;"
ACCEPTING = {"checkpoint.accept_state_loss": "true"}


def compiled(sql: str) -> Graph:
    return compile_pipeline(sql, CONNECTORS)


def state(service: Service) -> StateBackend:
    return StateBackend(ObjectStore(str(service.folder / "state")), JOB)


async def begin(service: Service, sql: str = SQL) -> None:
    await service.controller.create(NewJob(JOB, sql))
    await service.run()


async def refused(service: Service, sql: str) -> IncompatibleState:
    """The refusal of an edit, after which the job is as it was."""
    before, workers = await service.record(), len(service.world.workers)
    with pytest.raises(IncompatibleState) as raised:
        await service.controller.edit(JOB, sql, None, {})
    await asyncio.sleep(0.1)
    after = await service.record()
    assert (after.pipeline, after.desired) == (before.pipeline, before.desired)
    assert (after.status.state, after.status.run) == (before.status.state, before.status.run)
    assert len(service.world.workers) == workers
    return raised.value


@simulated
async def test_an_edit_that_loses_state_is_refused_and_the_job_runs_on(service: Service) -> None:
    await begin(service)
    seal(state(service), compiled(SQL), 1)
    error = await refused(service, WIDER)
    assert "would lose state of epoch 1" in error.message
    assert "5 rows of state in 1 files would be lost (LOST)" in error.message
    assert "source-ticks" in error.message
    assert "--accept-state-loss" in error.hint
    await service.run()


@simulated
async def test_an_edit_that_loses_state_passes_if_the_loss_is_accepted(service: Service) -> None:
    await begin(service)
    seal(state(service), compiled(SQL), 1)
    await service.controller.edit(JOB, WIDER, None, dict(ACCEPTING))
    await service.run()
    assert (await service.record()).pipeline.sql == WIDER


@pytest.mark.parametrize("sealed", [False, True], ids=["no checkpoint yet", "an empty one"])
@simulated
async def test_a_running_job_counts_as_holding_state_whatever_its_newest_checkpoint_has(
    service: Service, sealed: bool
) -> None:
    """It takes a checkpoint before the edit takes effect, with the state that it has by then."""
    await begin(service)
    if sealed:
        seal(state(service), compiled(SQL), 1, rows=0)
    error = await refused(service, WIDER)
    assert "its state when the edit takes effect would be lost (LOST)" in error.message


@simulated
async def test_a_stopped_job_is_judged_by_its_newest_checkpoint(service: Service) -> None:
    await begin(service)
    seal(state(service), compiled(SQL), 1, rows=0)
    await service.controller.stop(JOB, StopMode.CHECKPOINT)
    await service.end(StateName.STOPPED)
    await service.controller.edit(JOB, WIDER, None, {})
    assert (await service.record()).pipeline.sql == WIDER
    await refused(service, WIDER.replace("FROM ticks", "FROM others").replace("ticks", "others"))


@simulated
async def test_a_sink_can_be_removed_while_an_epoch_is_being_committed(service: Service) -> None:
    """The worker commits it before it stops."""
    await begin(service, WITH_SINK)
    seal(state(service), compiled(WITH_SINK), 1, is_committed=False)
    await service.controller.edit(JOB, SQL, None, {})
    await service.run()
    assert (await service.record()).status.run == 2


@simulated
async def test_a_source_that_changes_its_connector_is_refused_before_its_first_checkpoint(
    service: Service,
) -> None:
    await begin(service)
    nexmark = SQL.replace(
        "CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');",
        "CREATE TABLE ticks WITH (connector = 'nexmark', event_rate = '10');",
    )
    error = await refused(service, nexmark)
    assert "reads nexmark, but its offset is in impulse (LOST)" in error.message


@simulated
async def test_an_edit_is_refused_if_the_newest_checkpoint_cannot_be_read_in_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_READ_WITHIN", timedelta(milliseconds=200))
    await begin(service)
    service.storage.hangs_for = JOB
    with pytest.raises(StorageError, match="could not be read within"):
        await service.controller.edit(JOB, SQL + " -- more", None, {})
    assert (await service.record()).pipeline.sql == SQL
    service.storage.repair()
    await service.run()
