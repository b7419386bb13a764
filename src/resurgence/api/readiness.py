"""Whether the service can accept writes. Concurrent requests share one check.

`/ready` requires no key, so it must not cause a database write per request: a result is valid for
`freshness`. A database that hangs delays a request by at most `patience`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta

from resurgence.errors import StorageError

Check = Callable[[], Coroutine[None, None, None]]


class Readiness:
    """A check that is repeated when its result is stale."""

    def __init__(
        self,
        check: Check,
        freshness: timedelta = timedelta(seconds=1),
        patience: timedelta = timedelta(seconds=2),
    ) -> None:
        self._check = check
        self._freshness = freshness.total_seconds()
        self._patience = patience.total_seconds()
        self._checking: asyncio.Task[None] | None = None
        self._checked_at = float("-inf")

    async def require(self) -> None:
        """Raise StorageError if writes fail or take too long."""
        checking = self._current_check()
        done, _ = await asyncio.wait({checking}, timeout=self._patience)
        if not done:
            raise StorageError(
                "a write to the metadata database takes too long",
                hint="Check the load of the database and who holds its locks.",
            )
        checking.result()

    def _current_check(self) -> asyncio.Task[None]:
        last = self._checking
        is_old = time.monotonic() - self._checked_at >= self._freshness
        if last is None or (last.done() and is_old):
            last = self._checking = asyncio.create_task(self._check())
            last.add_done_callback(self._note_end)
        return last

    def _note_end(self, check: asyncio.Task[None]) -> None:
        self._checked_at = time.monotonic()
        if not check.cancelled():
            check.exception()  # else asyncio logs it as never retrieved
