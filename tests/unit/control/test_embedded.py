"""`resurgence run` records its events as a service does: off the event loop, and bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.control.conftest import FAST, SQL, ScriptedScheduler

from resurgence.clock import SystemClock
from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.control import embedded
from resurgence.control.controller import NewJob
from resurgence.control.definitions.job_definition import JobDefinition
from resurgence.control.embedded import Beside, EmbeddedController
from resurgence.control.jobs.job_record import (
    DesiredConfig,
    JobRecord,
    JobStatus,
    PipelineRecord,
    StopMode,
)
from resurgence.control.jobs.transitions import StateName
from resurgence.control.one_job import OneJob
from resurgence.control.store.metadata import MetadataStore, NoSuchJob
from resurgence.control.telemetry import event_recorder
from resurgence.control.telemetry.events import Event
from resurgence.errors import JobHeld, RunsInATerminal, UserError
from resurgence.ids import ControllerId, JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind
from resurgence.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from tests.unit.control.conftest import ScriptedWorker

JOB = JobName("rides")


class WatchedMetadata(MetadataStore):
    """Knows which threads wrote events."""

    writers: set[str]

    def record_events(
        self, events: Sequence[tuple[JobName, Event]], owner: ControllerId | None = None
    ) -> None:
        self.writers.add(threading.current_thread().name)
        super().record_events(events, owner)


def controller(
    folder: Path, metadata: MetadataStore, seen: list[Event], beside: Beside | None = None
) -> EmbeddedController:
    store = ObjectStore(str(folder / "state"))
    definition = JobDefinition(
        JOB,
        SQL,
        store.url,
        settings_from(FAST),
        lambda sql: compile_pipeline(sql, CONNECTORS),
        log_file=lambda worker: folder / f"{worker}.log",
    )
    return EmbeddedController(definition, store, metadata, [seen.append], beside=beside)


def test_events_of_a_run_are_written_off_the_event_loop_and_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def finishes(worker: ScriptedWorker) -> int:
        worker.job_runs.set()
        await worker.restore()
        return await worker.finish()

    monkeypatch.setattr(embedded, "make_scheduler", lambda _name: ScriptedScheduler(finishes))
    monkeypatch.setattr(event_recorder, "_RETAINED_EVENTS", 5)
    metadata = WatchedMetadata(tmp_path / "metadata.db")
    metadata.writers = set()
    now = SystemClock().now()
    metadata.put_job(
        JobRecord(JOB, PipelineRecord(SQL, "before"), DesiredConfig(1), JobStatus(), now)
    )
    old: Event = {"event": "old", "at": "2030-01-01T00:00:00+00:00"}
    metadata.record_events([(JOB, old)] * 20)
    metadata.writers.clear()
    seen: list[Event] = []
    asyncio.run(controller(tmp_path, metadata, seen).run())
    stored = [each.event for each in metadata.events(JOB, after=0, limit=1000)]
    metadata.close()
    assert seen[-1]["to"] == "Finished"
    assert stored[-1] == seen[-1]
    assert threading.main_thread().name not in metadata.writers
    assert len([each for each in stored if each["event"] == "old"]) <= 5


def test_a_console_beside_a_run_sees_its_job_and_can_only_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[tuple[bool, int]] = []
    refused: list[type[Exception]] = []

    async def until_stopped(worker: ScriptedWorker) -> int:
        worker.job_runs.set()
        await worker.restore()
        await worker.run_epoch(worker.first_epoch)
        return await worker.beat_until_stopped()

    async def look(job: OneJob) -> None:
        while True:
            view = await job.job(JOB)
            # The state is what is stored, which may be a moment behind.
            is_running = view.record.status.state is StateName.RUNNING
            if is_running and view.progress["committed_epoch"] == 1:
                break
            await asyncio.sleep(0.02)
        workers = await job.workers()
        looks.append((job.can_only_stop, len(workers)))
        assert (await job.graph(JOB)).sources()
        assert [each.record.name for each in await job.jobs()] == [JOB]
        requests: list[Callable[[], Awaitable[object]]] = [
            lambda: job.start(JOB),
            lambda: job.rescale(JOB, 2),
            lambda: job.restart(JOB, force=True, without_state=True),
            lambda: job.delete(JOB, with_state=True),
            lambda: job.edit(JOB, SQL, None, {}),
            lambda: job.create(NewJob(JobName("other"), SQL)),
            lambda: job.job(JobName("other")),
        ]
        for each in requests:
            try:
                await each()
            except UserError as error:
                refused.append(type(error))
        await job.stop(JOB, StopMode.CHECKPOINT)

    @asynccontextmanager
    async def beside(job: OneJob) -> AsyncIterator[None]:
        looking = asyncio.create_task(look(job))
        yield
        await looking

    monkeypatch.setattr(embedded, "make_scheduler", lambda _name: ScriptedScheduler(until_stopped))
    metadata = MetadataStore(tmp_path / "metadata.db")
    seen: list[Event] = []
    asyncio.run(controller(tmp_path, metadata, seen, beside).run())
    metadata.close()
    assert looks == [(True, 1)]
    assert refused == [*[RunsInATerminal] * 6, NoSuchJob]
    assert seen[-1]["to"] == "Stopped"


def test_a_run_that_is_refused_leaves_the_record_of_the_live_one_alone(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path / "state"))
    now = SystemClock().now()
    StateBackend(store, JOB).claim_generation(now, owner=owner_here(OwnerKind.RUN, "other", now))
    metadata = MetadataStore(tmp_path / "metadata.db")
    live = JobRecord(JOB, PipelineRecord("its SQL", "x"), DesiredConfig(1), JobStatus(), now)
    metadata.put_job(live)
    with pytest.raises(JobHeld):
        asyncio.run(controller(tmp_path, metadata, []).run())
    kept = metadata.job(JOB)
    metadata.close()
    assert kept is not None
    assert kept.pipeline.sql == "its SQL"
