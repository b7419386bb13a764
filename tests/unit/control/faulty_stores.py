"""The real object store and the real metadata database behind fault injection: calls fail, hang or
block when a test says so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from resurgence.control.jobs.job_record import JobStatus
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.database import Database
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.events import Event
from resurgence.errors import StorageError
from resurgence.ids import ControllerId, JobName
from resurgence.storage.object_store import ObjectStore, StoredObject

LONGEST_SCENE = timedelta(seconds=120)
LOOK_SECONDS = 0.005


async def until(true: Callable[[], bool]) -> None:
    """Wait until it is true; the scene has a deadline."""
    while not true():
        await asyncio.sleep(LOOK_SECONDS)


class FaultSwitch:
    """What is wrong with a store: its next calls fail, or those under a name hang."""

    def __init__(self) -> None:
        self.failing_calls = 0
        self.severed = False
        self.hangs_for: JobName | None = None
        self.hanging = 0
        self._lock = threading.Lock()
        self._repaired = threading.Event()

    def inject(self, call: str) -> None:
        if self.hangs_for is not None and self.hangs_for in call:
            with self._lock:
                self.hanging += 1
            self._repaired.wait(LONGEST_SCENE.total_seconds())
        with self._lock:
            if self.severed:
                raise StorageError(f"{call}: the caller is dead")
            if self.failing_calls > 0:
                self.failing_calls -= 1
                raise StorageError(f"{call}: connection refused")

    def repair(self) -> None:
        self.hangs_for = None
        self._repaired.set()


class FaultyStore(ObjectStore):
    """A real object store behind a fault switch."""

    def __init__(self, fault: FaultSwitch, url: str, *, private: bool = False) -> None:
        super().__init__(url, private=private)
        self._fault = fault

    def create(self, path: str, data: bytes) -> bool:
        self._fault.inject(f"create {path}")
        return super().create(path, data)

    def read(self, path: str) -> bytes:
        self._fault.inject(f"read {path}")
        return super().read(path)

    def size(self, path: str) -> int | None:
        self._fault.inject(f"size {path}")
        return super().size(path)

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        self._fault.inject(f"list {prefix}")
        return super().list(prefix, after)

    def delete(self, paths: Iterable[str]) -> None:
        self._fault.inject("delete")
        super().delete(paths)


class FaultyDatabase(Database):
    """A real database behind a fault switch."""

    def __init__(self, path: Path, fault: FaultSwitch) -> None:
        super().__init__(path)
        self._fault = fault

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        self._fault.inject("read")
        with super().reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        self._fault.inject("write")
        with super().writing() as connection:
            yield connection


class Hold:
    """Keeps a job at the door of a state: entered, not yet on record, its work not yet begun."""

    def __init__(self, job: JobName, state: StateName) -> None:
        self.job = job
        self.state = state
        self._reached = threading.Event()
        self._released = threading.Event()

    def wait(self) -> None:
        if not self._reached.is_set():
            self._reached.set()
            self._released.wait(LONGEST_SCENE.total_seconds())

    async def reached(self) -> None:
        await until(self._reached.is_set)

    def release(self) -> None:
        self._released.set()


class HeldMetadata(MetadataStore):
    """The real metadata store of one controller."""

    def __init__(self, path: Path, fault: FaultSwitch, holds: list[Hold]) -> None:
        self._database = FaultyDatabase(path, fault)
        self._holds = holds
        self._delete_answered = threading.Event()
        self._delete_answered.set()
        self.may_take_events = threading.Event()
        self.may_take_events.set()

    def record_events(
        self, events: Sequence[tuple[JobName, Event]], owner: ControllerId | None = None
    ) -> None:
        self.may_take_events.wait(LONGEST_SCENE.total_seconds())
        super().record_events(events, owner)

    def hold_after_delete(self) -> None:
        """Let the next delete be done, and not yet answered."""
        self._delete_answered.clear()

    def release_delete(self) -> None:
        self._delete_answered.set()

    def delete_job(self, name: JobName, owner: ControllerId | None = None) -> None:
        super().delete_job(name, owner)
        self._delete_answered.wait(LONGEST_SCENE.total_seconds())

    def record_status(
        self, name: JobName, status: JobStatus, owner: ControllerId | None = None
    ) -> None:
        for hold in list(self._holds):
            if (hold.job, hold.state) == (name, status.state):
                hold.wait()
        super().record_status(name, status, owner)
