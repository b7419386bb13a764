"""Whether this controller can reach the storage of its service.

Jobs that another controller could run must not fail here because of this machine's network. The
probe reads one small thing at a time; an answer that does not come in time counts as a failure.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta

from resurgence.control.background import in_thread
from resurgence.errors import ResurgenceError

_ABANDON = timedelta(seconds=10)
"""When another request is sent in place of one without an answer. The client of a store retries by
itself, and waits longer each time.
"""

log = logging.getLogger("resurgence.control")


class StorageProbe:
    """Asks the storage whenever `check` is called."""

    def __init__(self, ask: Callable[[], object], patience: timedelta) -> None:
        """`ask` reads from the storage; it blocks, and raises a ResurgenceError if it fails.
        `patience` is how long `check` waits for the answer.
        """
        self._ask = ask
        self._patience = patience
        self._asking: asyncio.Task[object] | None = None
        self._asked_at = 0.0
        self._unreachable_since: float | None = None

    @property
    def is_reachable(self) -> bool:
        return self._unreachable_since is None

    def unreachable_for(self, now: float) -> timedelta:
        """Return for how long all requests have failed. `now` is monotonic time in seconds."""
        since = self._unreachable_since
        return timedelta(0) if since is None else timedelta(seconds=now - since)

    async def check(self) -> None:
        """Ask the storage, and wait for the answer or for the end of patience."""
        now = time.monotonic()
        if self._asking is None or now - self._asked_at > _ABANDON.total_seconds():
            self._asking, self._asked_at = asyncio.create_task(in_thread(self._ask)), now
            self._asking.add_done_callback(_retrieve)
        answered, _ = await asyncio.wait({self._asking}, timeout=self._patience.total_seconds())
        error = self._asking.exception() if answered else TimeoutError("no answer in time")
        if answered:
            self._asking = None
        if error is None:
            if not self.is_reachable:
                log.warning("the storage of the service answers again")
            self._unreachable_since = None
        elif self.is_reachable:
            message = error.message if isinstance(error, ResurgenceError) else str(error)
            log.warning("cannot reach the storage of the service: %s", message)
            self._unreachable_since = self._asked_at


def _retrieve(asking: asyncio.Task[object]) -> None:
    """Note that the result of an abandoned request is of no interest."""
    if not asking.cancelled():
        asking.exception()
