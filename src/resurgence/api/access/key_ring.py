"""The API keys as the gate needs them: from the database, but not once per request.

A key that was made or removed counts after `freshness`. While the database does not answer, the keys
that were last seen go on to count; if none were ever seen, no one gets in. A database that hangs
delays a request by `patience` at most.
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
    """Reads the keys anew when they have become old."""

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
        """All keys; a StorageError if they have never been seen."""
        await self._refresh()
        if self._keys is None:
            raise StorageError("the API keys cannot be read: the metadata database does not answer")
        return self._keys

    async def _refresh(self) -> None:
        """One reader at a time, whoever waits for it."""
        if self._reading is None and time.monotonic() - self._read_at >= self._freshness:
            self._reading = asyncio.create_task(self._read_anew())
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=self._patience)

    async def _read_anew(self) -> None:
        try:
            with contextlib.suppress(StorageError):
                self._keys = tuple(await in_thread(self._read))
        finally:
            self._read_at = time.monotonic()
            self._reading = None
