"""Time as a value: whoever decides takes `now`, whoever runs takes a `Clock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_BEGAN_AT, _BEGAN = datetime.now(UTC), time.monotonic()


class Clock(Protocol):
    """Where `now` comes from."""

    def now(self) -> datetime:
        """The present instant, in UTC."""
        ...


class SystemClock:
    """The machine's clock as it was when the process began, and time as it passes since. It does not
    jump when someone sets the clock: a step of half a minute must not look like a dead worker.
    """

    def now(self) -> datetime:
        return _BEGAN_AT + timedelta(seconds=time.monotonic() - _BEGAN)


def seconds(span: timedelta) -> float:
    """A span in seconds, rounded to the millisecond, for people and JSON."""
    return round(span.total_seconds(), 3)


def instant_text(at: datetime) -> str:
    """An instant as ISO 8601 with a zone, for events and records."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")
