"""A cache of the API keys, so that requests do not read the database.

A created or removed key takes effect after `freshness`. While the database does not respond, the
keys that were read last remain valid; if none were ever read, all requests are refused. A database
that hangs delays a request by at most `patience`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from resurgence.control.background import in_thread
from resurgence.control.store.metadata import ApiKey
from resurgence.errors import StorageError

ReadKeys = Callable[[], Sequence[ApiKey]]


class KeyRing:
    """The keys, reloaded when they are stale."""

    def __init__(
        self,
        read: ReadKeys,
        freshness: timedelta = timedelta(seconds=2),
        patience: timedelta = timedelta(seconds=2),
    ) -> None:
        self._read = read
        self._freshness = freshness.total_seconds()
        self._patience = patience.total_seconds()
        self._keys: tuple[ApiKey, ...] | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def keys(self) -> Sequence[ApiKey]:
        """Return all keys; raise StorageError if they were never read."""
        await self._refresh()
        if self._keys is None:
            raise StorageError("cannot read the API keys: the metadata database does not respond")
        return self._keys

    async def _refresh(self) -> None:
        """Reload stale keys. Concurrent requests share one read."""
        if self._reading is None and time.monotonic() - self._read_at >= self._freshness:
            self._reading = asyncio.create_task(self._reload())
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=self._patience)

    async def _reload(self) -> None:
        try:
            with contextlib.suppress(StorageError):
                self._keys = tuple(await in_thread(self._read))
        finally:
            self._read_at = time.monotonic()
            self._reading = None
