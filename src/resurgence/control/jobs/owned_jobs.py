"""The jobs that a controller owns: one keeper each. Which jobs those are is decided elsewhere: all of
them, or those that `fleet` claims.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from pydantic import JsonValue

from resurgence.clock import Clock
from resurgence.control.background import Lane, in_thread
from resurgence.control.definitions.job_environment import JobEnvironment
from resurgence.control.jobs.job_keeper import JobKeeper
from resurgence.control.jobs.job_record import JobRecord, StopMode
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.event_recorder import EventRecorder
from resurgence.control.telemetry.events import Event
from resurgence.control.workers.scheduler import is_worker
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.errors import ResurgenceError
from resurgence.ids import ControllerId, JobName

_SPREAD = timedelta(milliseconds=300)
"""The delay between the starts of jobs that a controller gets at the same time."""
_DATABASE_CALLS = 6
"""Calls of the database that jobs make at the same time. Fewer than its pool has connections, so that a
renewal of the controller's lease and requests need not wait for a thousand jobs.
"""
_LAST_EVENTS = timedelta(seconds=5)

RequireOwnedBy = Callable[[JobName, ControllerId, bool], None]

log = logging.getLogger("resurgence.control")


class OwnedJobs:
    """The keepers of a controller, by job."""

    def __init__(
        self,
        metadata: MetadataStore,
        pool: WorkerPool,
        environment: JobEnvironment,
        clock: Clock,
        recorder: EventRecorder,
        note: Callable[[JobName, Event], None],
    ) -> None:
        self._metadata = metadata
        self._pool = pool
        self._environment = environment
        self._clock = clock
        self._recorder = recorder
        self._note = note
        self._lane = Lane(_DATABASE_CALLS)
        self._keepers: dict[JobName, JobKeeper] = {}
        self._closing: StopMode | None = None
        self.service_id = ""
        self.owner: ControllerId | None = None
        """This controller, if it is not the only one."""
        self.require_owned: RequireOwnedBy | None = None
        self.on_removed: Callable[[JobName], None] = lambda _name: None

    def __iter__(self) -> Iterator[JobKeeper]:
        return iter(tuple(self._keepers.values()))

    def get(self, name: JobName) -> JobKeeper | None:
        return self._keepers.get(name)

    # ---------------------------------------------------------------- life

    def add(self, record: JobRecord) -> JobKeeper:
        """Add the keeper of a job. It does not begin by itself."""
        owner, require = self.owner, None
        if owner is not None and self.require_owned is not None:
            require = functools.partial(self.require_owned, record.name, owner)
        keeper = JobKeeper(
            record,
            self._metadata,
            self._pool,
            self._environment,
            self._clock,
            self._note,
            self.service_id,
            owner,
            require,
            self._lane,
        )
        keeper.on_deleted = self._remove
        keeper.discard_events = self._recorder.discard
        self._keepers[record.name] = keeper
        return keeper

    def resume(self, records: list[JobRecord]) -> None:
        """Add the keepers of all jobs, spread their starts, and expect their workers."""
        delayed = 0
        for record in records:
            keeper = self.add(record)
            if not keeper.adopt():
                keeper.delay = _SPREAD * delayed
                delayed += 1

    def begin(self) -> None:
        for keeper in self:
            keeper.begin()

    async def close(self, mode: StopMode) -> None:
        """Stop every job's worker. The desired states do not change."""
        await asyncio.gather(*(each.close(mode) for each in self))

    def hurry(self) -> None:
        """Stop waiting for checkpoints, now and later."""
        self._closing = StopMode.FORCE
        for keeper in self:
            keeper.hurry()

    def _remove(self, keeper: JobKeeper) -> None:
        # Another job may already have the name.
        if self._keepers.get(keeper.name) is keeper:
            del self._keepers[keeper.name]
            self.on_removed(keeper.name)

    # ---------------------------------------------------------------- one of several controllers

    def revisions(self) -> Mapping[JobName, int]:
        """Return the jobs with the revisions that their keepers know."""
        return {name: keeper.record.revision for name, keeper in self._keepers.items()}

    async def take(self, record: JobRecord, *, orphaned: bool, nth: int) -> bool:
        """Run a job that was claimed. `orphaned`: its worker, if it has one, waits to be adopted.
        Return False if the job needs a new worker: it starts as the nth of a batch.
        """
        keeper = self.add(record)
        worker = record.status.worker
        # A pid means nothing on another machine.
        is_here = worker is not None and await in_thread(is_worker, worker.pid, worker.worker)
        is_adopted = is_here and orphaned and keeper.adopt()
        if not is_adopted:
            keeper.delay = _SPREAD * nth
            keeper.stray = worker if is_here else None
        keeper.begin()
        return is_adopted

    async def let_go(self, name: JobName) -> None:
        """Stop running a job that another controller owns, or that was deleted."""
        keeper = self._keepers.get(name)
        if keeper is not None:
            await keeper.let_go()
            await self._recorder.discard(name)
            self._remove(keeper)

    async def hand_over(self, name: JobName) -> JobRecord | None:
        """Stop a job at a checkpoint, and store everything about it. Return its last record; None
        if it was not run here.
        """
        keeper = self._keepers.get(name)
        if keeper is None:
            return None
        await keeper.close(self._closing or StopMode.CHECKPOINT)
        await self._recorder.flush(_LAST_EVENTS)
        try:
            await keeper.store_status()
        except ResurgenceError as error:
            log.warning("cannot store the status of job %s: %s", name, error.message)
        self._remove(keeper)
        return keeper.current()

    def apply(self, record: JobRecord) -> None:
        """Apply a request that another controller stored."""
        keeper = self._keepers.get(record.name)
        if keeper is not None:
            keeper.set_desired(record)

    def progress(self) -> Mapping[JobName, dict[str, JsonValue]]:
        """Return the progress of all jobs, as the API shows it."""
        return {name: keeper.progress() for name, keeper in self._keepers.items()}
