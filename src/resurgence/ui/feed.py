"""Values that many pages show, read and rendered once for all of them.

A value is read again when someone asks for it and it is older than its freshness; requests at the
same time share one read. So the work of the service depends on what is shown, not on the number of
pages that show it. A value that is equal to the one before stays the same object: what was derived
from that one is still right, and who holds it has nothing to redraw.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar

from resurgence.control.background import in_thread

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
    is_expired: bool = False
    """The value has changed since its read began."""


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

    def known(self, key: K) -> V | None:
        """Return the value that was read last, however old it is."""
        entry = self._entries.get(key)
        return entry.values[0] if entry is not None and entry.values else None

    def expire(self, key: K) -> None:
        """Read a value again when it is asked for next: a request has changed it. A read that is
        under way may have begun before the change, and is repeated.
        """
        if key in self._entries:
            _expire(self._entries[key])

    def expire_all(self) -> None:
        """Read all values again when they are asked for next."""
        for each in self._entries.values():
            _expire(each)

    async def _reload(self, key: K, entry: _Entry[V]) -> None:
        try:
            entry.is_expired = True
            while entry.is_expired:
                entry.is_expired = False
                await self._read_once(key, entry)
        finally:
            entry.read_at = self._now()
            entry.reading = None

    async def _read_once(self, key: K, entry: _Entry[V]) -> None:
        try:
            value = await self._read(key)
            if not entry.values or entry.values[0] != value:
                entry.values = [value]
            entry.error = None
        except Exception as error:
            entry.error = error

    def _forget_unasked(self, now: float) -> None:
        old = [
            key
            for key, each in self._entries.items()
            if now - each.asked_at > _KEPT_UNASKED and each.reading is None
        ]
        for key in old:
            del self._entries[key]


@dataclass(frozen=True, eq=False)
class _Derived(Generic[V]):
    sources: tuple[object, ...]
    value: V


class Derived(Generic[K, V]):
    """Values that are computed from those of feeds, again only if one of these has changed."""

    def __init__(
        self,
        sources: Callable[[K], Awaitable[tuple[object, ...]]],
        derive: Callable[..., V],
    ) -> None:
        """`derive` is called with the key and the sources, in a thread."""
        self._sources = sources
        self._derive = derive
        self._feed: Feed[K, _Derived[V]] = Feed(self._read, timedelta(0))

    async def get(self, key: K) -> V:
        """Return the value; raise what a read of its sources raised."""
        return (await self._feed.get(key)).value

    async def _read(self, key: K) -> _Derived[V]:
        sources = await self._sources(key)
        known = self._feed.known(key)
        if known is not None and all(
            one is other for one, other in zip(known.sources, sources, strict=True)
        ):
            return known
        return _Derived(sources, await in_thread(self._derive, key, *sources))


def _expire(entry: _Entry[V]) -> None:
    entry.read_at = float("-inf")
    entry.is_expired = True
