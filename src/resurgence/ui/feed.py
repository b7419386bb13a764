"""Values that many pages show, read once for all of them.

A value is read again when someone asks for it and it is older than its freshness; requests at the
same time share one read. So the work of the service depends on what is shown, not on the number of
pages that show it. A value that is equal to the one before stays the same object: who holds that
one has nothing to redraw.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_KEPT_UNASKED = 90.0


@dataclass
class _Entry(Generic[V]):
    asked_at: float
    read_at: float = float("-inf")
    values: list[V] = field(default_factory=list)
    """The value, if there is one."""
    error: Exception | None = None
    reading: asyncio.Task[None] | None = None


class Feed(Generic[K, V]):
    """Values by key, each read at most once per `freshness`."""

    def __init__(
        self,
        read: Callable[[K], Awaitable[V]],
        freshness: timedelta,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._freshness = freshness.total_seconds()
        self._now = now
        self._entries: dict[K, _Entry[V]] = {}

    async def get(self, key: K) -> V:
        """Return the value; raise what its read raised. An error counts as read, too: pages that
        ask again and again must not burden what is failing.
        """
        now = self._now()
        self._forget_unasked(now)
        entry = self._entries.setdefault(key, _Entry(now))
        entry.asked_at = now
        if entry.reading is None and now - entry.read_at >= self._freshness:
            entry.reading = asyncio.create_task(self._reload(key, entry))
        if entry.reading is not None:
            await asyncio.shield(entry.reading)
        if entry.error is not None:
            raise entry.error
        return entry.values[0]

    def expire(self, key: K) -> None:
        """Read a value again when it is asked for next: a request has changed it."""
        if key in self._entries:
            self._entries[key].read_at = float("-inf")

    def expire_all(self) -> None:
        """Read all values again when they are asked for next."""
        for each in self._entries.values():
            each.read_at = float("-inf")

    async def _reload(self, key: K, entry: _Entry[V]) -> None:
        try:
            value = await self._read(key)
            if not entry.values or entry.values[0] != value:
                entry.values = [value]
            entry.error = None
        except Exception as error:
            entry.error = error
        finally:
            entry.read_at = self._now()
            entry.reading = None

    def _forget_unasked(self, now: float) -> None:
        old = [
            key
            for key, each in self._entries.items()
            if now - each.asked_at > _KEPT_UNASKED and each.reading is None
        ]
        for key in old:
            del self._entries[key]
