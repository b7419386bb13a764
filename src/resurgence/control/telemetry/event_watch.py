"""Wakes those who wait for an event of a job. One query per interval asks for all of them, so that the
load on the database does not depend on how many wait; no one waits, no query.

Events become visible in the order of their ids. So an event that is stored after a follower has looked
has a higher id than all that the watch has seen before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Protocol

from resurgence.control.background import in_thread
from resurgence.errors import StorageError
from resurgence.ids import JobName

_INTERVAL = timedelta(milliseconds=250)


class StoredEvents(Protocol):
    """The part of the metadata database that is asked. Both calls block."""

    def last_event_id(self) -> int:
        """Return the id of the newest event of all jobs."""

    def news(self, jobs: Collection[JobName], after: int) -> tuple[int, set[JobName]]:
        """Return the id of the newest event, and which of these jobs have events with ids above
        `after` or do not exist any more.
        """


class EventWatch:
    """The followers of a controller's API."""

    def __init__(self, stored: StoredEvents, interval: timedelta = _INTERVAL) -> None:
        self._stored = stored
        self._interval = interval.total_seconds()
        self._followers: dict[asyncio.Event, JobName] = {}
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def following(self, job: JobName) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the job may have news. The caller looks at the database
        after that, and clears the event before.
        """
        news = asyncio.Event()
        self._followers[news] = job
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield news
        finally:
            del self._followers[news]

    async def _watch(self) -> None:
        seen: int | None = None
        while self._followers:
            jobs = set(self._followers.values())
            try:
                if seen is None:
                    # What was stored before this answer may have been missed by any follower.
                    seen, changed = await in_thread(self._stored.last_event_id), jobs
                else:
                    seen, changed = await in_thread(self._stored.news, tuple(jobs), seen)
            except StorageError:
                # Their own requests report it.
                seen, changed = None, jobs
            for news, job in self._followers.items():
                if job in changed:
                    news.set()
            await asyncio.sleep(self._interval)
