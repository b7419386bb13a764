"""The clock of the failure detector: counts only the time in which the controller was running."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta

from resurgence.clock import Clock

_SAMPLE_SECONDS = 0.1


class PauseAwareClock:
    """A clock that stops while this process is stopped, starved, or on a sleeping machine. No
    heartbeat is received then, so none may count as missing.

    It samples the time periodically. An interval between two samples longer than twice the period
    is a pause; the excess is subtracted. Before `start` and after `close` it equals the underlying
    clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paused_seconds = 0.0
        self._sampled_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to sample, on the running event loop."""
        self._paused_seconds += self._pause_seconds()
        self._sampled_at = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(_SAMPLE_SECONDS, self.start)

    def close(self) -> None:
        self._sampled_at = None
        if self._timer is not None:
            self._timer.cancel()

    def now(self) -> datetime:
        return self._clock.now() - timedelta(seconds=self._paused_seconds + self._pause_seconds())

    def _pause_seconds(self) -> float:
        """Return the length of the current pause."""
        if self._sampled_at is None:
            return 0.0
        return max(0.0, time.monotonic() - self._sampled_at - 2 * _SAMPLE_SECONDS)
