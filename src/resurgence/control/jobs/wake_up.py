"""Wakes the state of a job on an event: a request, a message, the exit of a worker."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

PROGRESS_TICK = timedelta(milliseconds=200)


class WakeUp:
    """One task waits, many notify."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()

    def notify(self) -> None:
        self._happened.set()

    async def tick(self, at_most: timedelta = PROGRESS_TICK) -> None:
        """Wait for a notification, but at most one progress tick or `at_most`."""
        await self.wait(min(at_most, PROGRESS_TICK))

    async def wait(self, at_most: timedelta) -> None:
        """Wait for a notification, but at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most.total_seconds()):
                await self._happened.wait()
        self._happened.clear()
