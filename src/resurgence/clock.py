"""Time as a value: whoever decides takes `now`, whoever runs takes a `Clock`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from."""

    def now(self) -> datetime:
        """The present instant, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def seconds(span: timedelta) -> float:
    """A span in seconds, rounded to the millisecond, for people and JSON."""
    return round(span.total_seconds(), 3)


def instant_text(at: datetime) -> str:
    """An instant as ISO 8601 with a zone, for events and records."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")
