"""Time as a value: code that decides takes `now`, code that runs takes a `Clock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_BEGAN_AT, _BEGAN = datetime.now(UTC), time.monotonic()


class Clock(Protocol):
    """A source of `now`."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        ...


class SystemClock:
    """The system time at process start, advanced by the monotonic clock. It does not jump when
    someone sets the clock: a step of half a minute must not look like a dead worker.
    """

    def now(self) -> datetime:
        return _BEGAN_AT + timedelta(seconds=time.monotonic() - _BEGAN)


def seconds(span: timedelta) -> float:
    """Return a span in seconds, rounded to the millisecond, for display and JSON."""
    return round(span.total_seconds(), 3)


def instant_text(at: datetime) -> str:
    """Format an instant as ISO 8601 with a time zone, for events and records."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")
