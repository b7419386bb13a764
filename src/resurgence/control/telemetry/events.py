"""Events: past facts about a job, in order, for people, files and the database.

One JSON object per line, at least `event` and `at`. Listeners receive each event once, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import JsonValue

from resurgence.clock import Clock, instant_text

Event = dict[str, JsonValue]


@dataclass
class EventLog:
    """Passes each event to all listeners."""

    clock: Clock
    listeners: list[Callable[[Event], None]] = field(default_factory=list)

    def emit(self, event: str, **facts: JsonValue) -> None:
        """Emit an event with the current time."""
        record: Event = {"event": event, "at": instant_text(self.clock.now()), **facts}
        for listener in self.listeners:
            listener(record)
