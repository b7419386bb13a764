"""Long polls: requests that wait for an event.

A waiting request holds a connection, so their number is limited. They end when the service shuts
down, so that they do not delay it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from resurgence.api.error_answer import Refusal

MAX_WAIT_SECONDS = 30
T = TypeVar("T")


class LongPolls:
    """A limited number of waiting requests."""

    def __init__(self, limit: int = 64, interval: timedelta = timedelta(milliseconds=250)) -> None:
        self._limit = limit
        self._interval = interval.total_seconds()
        self._waiting = 0
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all waits, and allow no more."""
        self._closing.set()

    async def wait_for(
        self,
        poll: Callable[[], Awaitable[Sequence[T]]],
        wait: float,
        is_gone: Callable[[], Awaitable[bool]],
    ) -> Sequence[T]:
        """Return what `poll` finds, once it finds something, or nothing after `wait` seconds."""
        found = await poll()
        if found or wait <= 0:
            return found
        if self._waiting >= self._limit:
            raise Refusal(
                429,
                "limit.polls",
                "too many requests are waiting for events",
                hint="Retry later, or without `wait`.",
                headers={"Retry-After": "5"},
            )
        deadline = time.monotonic() + wait
        self._waiting += 1
        try:
            while not found and not self._closing.is_set() and not await is_gone():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), min(left, self._interval))
                found = await poll()
        finally:
            self._waiting -= 1
        return found
