"""The time for which the controller has listened to its workers."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta

from resurgence.clock import Clock

_LOOK_SECONDS = 0.1


class PauseAwareClock:
    """A clock that stands still while this process does: stopped, starved, or on a machine that
    sleeps. Nobody is heard then, and so nobody is silent.

    It looks at the time over and over; what passes between two looks beyond twice their distance was
    a pause. Before `start` and after `close` it is the clock that it is made from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paused_seconds = 0.0
        self._looked_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look, on the loop that runs."""
        self._paused_seconds += self._pause_seconds()
        self._looked_at = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self.start)

    def close(self) -> None:
        self._looked_at = None
        if self._timer is not None:
            self._timer.cancel()

    def now(self) -> datetime:
        return self._clock.now() - timedelta(seconds=self._paused_seconds + self._pause_seconds())

    def _pause_seconds(self) -> float:
        """How long the present pause is."""
        if self._looked_at is None:
            return 0.0
        return max(0.0, time.monotonic() - self._looked_at - 2 * _LOOK_SECONDS)
