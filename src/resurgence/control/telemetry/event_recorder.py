"""Writes events to the metadata database in the background: a slow or unavailable database delays
no job, and the queue of events is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Sequence
from datetime import timedelta

from resurgence.control.background import in_thread
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.events import Event
from resurgence.errors import StorageError, UserError
from resurgence.ids import ControllerId, JobName

_WAITING = 10_000
_BATCH = 500
_GATHER = timedelta(milliseconds=100)
"""How long an event waits for others that are written with it."""
_PAUSE = timedelta(seconds=1)
_RETAINED_EVENTS = 10_000
_PRUNED_EVERY = 2_000
"""Events of one job."""

log = logging.getLogger("resurgence.control")


class EventRecorder:
    """One queue for all jobs of a controller."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._waiting: deque[tuple[JobName, Event]] = deque()
        self._arrived = asyncio.Event()
        self._writing = asyncio.Lock()
        self._unpruned: dict[JobName, int] = {}
        """How many events of each job were written since its last pruning."""
        self._largest = _BATCH
        self.dropped = 0
        self.owner: ControllerId | None = None
        """Only events of jobs that this controller owns are written; None: all."""

    def note(self, job: JobName, event: Event) -> None:
        """Queue an event. Never blocks."""
        if len(self._waiting) >= _WAITING:
            self._waiting.popleft()
            self.dropped += 1
            if self.dropped == 1:
                log.error("the metadata database is unavailable: dropping the oldest queued events")
        self._waiting.append((job, event))
        self._arrived.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._arrived.wait()
            # A transaction for each event would cost more than the events.
            await asyncio.sleep(_GATHER.total_seconds())
            self._arrived.clear()
            while self._waiting:
                if not await self._write_batch():
                    await asyncio.sleep(_PAUSE.total_seconds())

    async def flush(self, deadline: timedelta) -> None:
        """Write the queued events until the deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline.total_seconds()):
                while self._waiting and await self._write_batch():
                    pass

    async def discard(self, job: JobName) -> None:
        """Drop the queued events of this job."""
        async with self._writing:
            self._waiting = deque(each for each in self._waiting if each[0] != job)
            self._unpruned.pop(job, None)

    async def _write_batch(self) -> bool:
        # A flush must not write a batch a second time.
        async with self._writing:
            return await self._write()

    async def _write(self) -> bool:
        batch = list(itertools.islice(self._waiting, self._largest))
        try:
            await in_thread(self._metadata.record_events, batch, self.owner)
        except StorageError as error:
            log.warning("cannot store events yet: %s", error.message)
            return False
        except UserError as error:
            # One event cannot be stored: write them one by one, to find and drop it.
            if len(batch) > 1:
                self._largest = 1
                return True
            log.error("dropped an event of job %s: %s", batch[0][0], error.message)
            self._largest = _BATCH
        for written in batch:
            # An event dropped in the meantime is no longer at the front.
            if self._waiting and self._waiting[0] is written:
                self._waiting.popleft()
        await self._prune([job for job, _ in batch])
        return True

    async def _prune(self, written: Sequence[JobName]) -> None:
        """Prune the jobs that have grown by an interval since the last time."""
        for job in written:
            # The first write prunes: a process may end before it has written a full interval itself.
            self._unpruned[job] = self._unpruned.get(job, _PRUNED_EVERY) + 1
        due = [job for job in set(written) if self._unpruned[job] >= _PRUNED_EVERY]
        if due:
            self._unpruned.update(dict.fromkeys(due, 0))
            with contextlib.suppress(StorageError):
                await in_thread(self._metadata.prune, _RETAINED_EVENTS, due)
