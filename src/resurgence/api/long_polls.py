"""Long polls: requests that wait for an event.

A waiting request holds a connection, so their number is limited. They end when the service shuts
down, so that they do not delay it. They look at the database only when there are news.
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

    def __init__(self, limit: int = 500, interval: timedelta = timedelta(seconds=1)) -> None:
        """`interval` is how often a request checks that its client is still there."""
        self._limit = limit
        self._interval = interval.total_seconds()
        self._waiting: set[asyncio.Event] = set()
        self._is_closing = False

    def close(self) -> None:
        """End all waits, and allow no more."""
        self._is_closing = True
        for news in self._waiting:
            news.set()

    async def wait_for(
        self,
        look: Callable[[], Awaitable[Sequence[T]]],
        wait: float,
        is_gone: Callable[[], Awaitable[bool]],
        news: asyncio.Event,
    ) -> Sequence[T]:
        """Return what `look` finds, once it finds something, or nothing after `wait` seconds. `news`
        is set when it may find something.
        """
        found = await look()
        if found or wait <= 0:
            return found
        if len(self._waiting) >= self._limit:
            raise Refusal(
                429,
                "limit.polls",
                "too many requests are waiting for events",
                hint="Retry later, or without `wait`.",
                headers={"Retry-After": "5"},
            )
        deadline = time.monotonic() + wait
        self._waiting.add(news)
        try:
            while not found and not self._is_closing and not await is_gone():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), min(left, self._interval))
                if news.is_set():
                    news.clear()
                    found = await look()
        finally:
            self._waiting.discard(news)
        return found
