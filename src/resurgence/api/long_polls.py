"""Requests that wait for an event: how many at once, and when they end.

A request that waits holds a connection, so there is a bound. When the service closes, none of them
holds it up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from resurgence.api.error_answer import Refusal

LONGEST_WAIT = 30
T = TypeVar("T")


class LongPolls:
    """Lets so many requests wait at the same time."""

    def __init__(self, most: int = 64, interval: timedelta = timedelta(milliseconds=250)) -> None:
        self._most = most
        self._interval = interval.total_seconds()
        self._waiting = 0
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Answer whoever waits, and let no one wait from now on."""
        self._closing.set()

    async def wait_for(
        self,
        look: Callable[[], Awaitable[Sequence[T]]],
        wait: float,
        is_gone: Callable[[], Awaitable[bool]],
    ) -> Sequence[T]:
        """What `look` finds, as soon as it finds something; nothing after `wait` seconds."""
        found = await look()
        if found or wait <= 0:
            return found
        if self._waiting >= self._most:
            raise Refusal(
                429,
                "limit.polls",
                "too many requests are waiting for events",
                hint="ask without `wait`, or later",
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
                found = await look()
        finally:
            self._waiting -= 1
        return found
