"""Events reach the database in order, once, and survive its outage; the queue is bounded."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry import event_recorder
from resurgence.control.telemetry.event_recorder import EventRecorder
from resurgence.control.telemetry.events import Event
from resurgence.errors import StorageError, UserError
from resurgence.ids import ControllerId, JobName

RIDES, TRIPS = JobName("rides"), JobName("trips")
SHORT = timedelta(milliseconds=100)


class Store(MetadataStore):
    """The real one; its next writes of events fail, or take long."""

    failing_writes = 0
    refused: Event | None = None
    """An event that the database cannot hold."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_writing = threading.Event()
        self.may_write = threading.Event()
        self.may_write.set()

    def record_events(
        self, events: Sequence[tuple[JobName, Event]], owner: ControllerId | None = None
    ) -> None:
        self.is_writing.set()
        self.may_write.wait(5)
        if self.failing_writes > 0:
            self.failing_writes -= 1
            raise StorageError("the metadata database failed: it is away")
        if self.refused in [event for _, event in events]:
            raise UserError("the metadata database cannot store this value")
        super().record_events(events, owner)

    def numbers(self, job: JobName = RIDES) -> list[object]:
        return [each.event["n"] for each in self.events(job, limit=100_000)]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(event_recorder, "_PAUSE", timedelta(milliseconds=10))
    return Store(tmp_path / "metadata.db")


def event(n: int) -> Event:
    return {"event": "committed", "at": "2030-01-01T00:00:00Z", "n": n}


def record(store: Store, scene: Callable[[EventRecorder], Awaitable[None]]) -> None:
    """A scene with a recorder that runs."""

    async def run() -> None:
        recorder = EventRecorder(store)
        task = asyncio.create_task(recorder.run())
        try:
            async with asyncio.timeout(30):
                await scene(recorder)
        finally:
            store.may_write.set()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(run())
    store.close()


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def test_events_of_all_jobs_are_written_in_order(store: Store) -> None:
    async def scene(recorder: EventRecorder) -> None:
        for n in range(1200):
            recorder.note(RIDES if n % 2 else TRIPS, event(n))
        await until(lambda: len(store.numbers(RIDES)) == len(store.numbers(TRIPS)) == 600)
        assert store.numbers(RIDES) == list(range(1, 1200, 2))
        assert store.numbers(TRIPS) == list(range(0, 1200, 2))

    record(store, scene)


def test_events_survive_an_outage_in_order_and_once(store: Store) -> None:
    async def scene(recorder: EventRecorder) -> None:
        store.failing_writes = 3
        for n in range(3):
            recorder.note(RIDES, event(n))
            await asyncio.sleep(0.01)
        await until(lambda: len(store.numbers()) == 3)
        assert store.numbers() == [0, 1, 2]
        assert recorder.dropped == 0

    record(store, scene)


def test_the_queue_is_bounded_and_drops_the_oldest_events(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_recorder, "_WAITING", 10)

    async def scene(recorder: EventRecorder) -> None:
        store.failing_writes = 1_000_000
        for n in range(25):
            recorder.note(RIDES, event(n))
        await asyncio.sleep(0.05)
        store.failing_writes = 0
        await until(lambda: len(store.numbers()) == 10)
        assert store.numbers() == list(range(15, 25))
        assert recorder.dropped == 15

    record(store, scene)


def test_events_dropped_while_a_batch_is_written_lose_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_recorder, "_WAITING", 3)

    async def scene(recorder: EventRecorder) -> None:
        store.may_write.clear()
        for n in range(3):
            recorder.note(RIDES, event(n))
        await until(store.is_writing.is_set)
        for n in range(3, 5):
            recorder.note(RIDES, event(n))
        store.may_write.set()
        await until(lambda: len(store.numbers()) == 5)
        assert store.numbers() == [0, 1, 2, 3, 4]

    record(store, scene)


def test_a_slow_database_does_not_block_listeners(store: Store) -> None:
    async def scene(recorder: EventRecorder) -> None:
        store.may_write.clear()
        recorder.note(RIDES, event(0))
        await until(store.is_writing.is_set)
        began = time.monotonic()
        for n in range(1, 1000):
            recorder.note(RIDES, event(n))
        assert time.monotonic() - began < 10

    record(store, scene)


def test_a_flush_writes_the_queued_events(store: Store) -> None:
    async def scene() -> None:
        recorder = EventRecorder(store)
        for n in range(1200):
            recorder.note(RIDES, event(n))
        await recorder.flush(timedelta(seconds=5))
        assert store.numbers() == list(range(1200))

    asyncio.run(scene())
    store.close()


@pytest.mark.parametrize("fault", ["fails", "hangs"])
def test_a_flush_gives_up_at_its_deadline(store: Store, fault: str) -> None:
    async def scene() -> None:
        recorder = EventRecorder(store)
        if fault == "fails":
            store.failing_writes = 1_000_000
        else:
            store.may_write.clear()
        recorder.note(RIDES, event(0))
        began = time.monotonic()
        await recorder.flush(SHORT)
        assert time.monotonic() - began < 10
        store.may_write.set()

    asyncio.run(scene())


def test_a_flush_does_not_write_again_what_is_being_written(store: Store) -> None:
    async def scene(recorder: EventRecorder) -> None:
        store.may_write.clear()
        for n in range(3):
            recorder.note(RIDES, event(n))
        await until(store.is_writing.is_set)
        flushed = asyncio.create_task(recorder.flush(timedelta(seconds=5)))
        await asyncio.sleep(0.05)
        store.may_write.set()
        await flushed
        await asyncio.sleep(0.05)
        assert store.numbers() == [0, 1, 2]

    record(store, scene)


def test_an_event_that_the_database_cannot_hold_does_not_end_the_recording(store: Store) -> None:
    async def scene(recorder: EventRecorder) -> None:
        store.refused = event(1)
        for n in range(3):
            recorder.note(RIDES, event(n))
        await asyncio.sleep(0.05)
        recorder.note(RIDES, event(3))
        await until(lambda: 3 in store.numbers())
        assert store.numbers() == [0, 2, 3]

    record(store, scene)


def test_old_events_are_pruned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "_RETAINED_EVENTS", 50)
    monkeypatch.setattr(event_recorder, "_PRUNED_EVERY", 100)

    async def scene(recorder: EventRecorder) -> None:
        for n in range(100):
            recorder.note(RIDES, event(n))
        await until(lambda: store.numbers() == list(range(50, 100)))

    record(store, scene)


def test_only_jobs_that_have_grown_are_pruned(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned: list[list[JobName]] = []
    monkeypatch.setattr(event_recorder, "_PRUNED_EVERY", 3)
    monkeypatch.setattr(store, "prune", lambda _keep, jobs: pruned.append(sorted(jobs)))

    def is_stored(job: JobName, number: int) -> bool:
        return number in store.numbers(job)

    async def scene(recorder: EventRecorder) -> None:
        for number, job in enumerate([RIDES, TRIPS, TRIPS, TRIPS, TRIPS]):
            recorder.note(job, event(number))
            await until(functools.partial(is_stored, job, number))
        # What is stored is pruned a moment later.
        await until(lambda: len(pruned) == 3)

    record(store, scene)
    assert pruned == [[RIDES], [TRIPS], [TRIPS]]
