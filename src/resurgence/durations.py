"""Durations as people write them: `500ms`, `15s`, `1.5h`, `10 seconds`, `1 hour 30 minutes`.

SQL's INTERVAL literals are SQL's own; `sql/syntax/intervals.py` reads them.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

_UNITS = {
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_SHORT = {"d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond"}
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*(?:({'|'.join(_UNITS)})s?|(ms|[smhd]))(?![a-z])\s*")


def parse_duration(given: object) -> timedelta:
    """A duration from its text; a ValueError says how to write it."""
    if isinstance(given, timedelta):
        return given
    rest, micros = str(given).strip(), Decimal(0)
    while match := _PART.match(rest):
        micros += Decimal(match[1]) * _UNITS[match[2] or _SHORT[match[3]]]
        rest = rest[match.end() :]
        if not rest:
            try:
                return timedelta(microseconds=int(micros))
            except OverflowError as error:
                raise ValueError(f"'{given}' is longer than any job will run") from error
    raise ValueError(f"'{given}' is not a duration; write it as 500ms, 15s, 2m or 1h")


def duration_text(micros: int) -> str:
    """A number of microseconds in the largest units, as in `1 hour 30 minutes`; `parse_duration`
    reads it back.
    """
    parts = []
    for unit, size in _UNITS.items():
        count, micros = divmod(micros, size)
        if count:
            parts.append(f"{count} {unit}" if count == 1 else f"{count} {unit}s")
    return " ".join(parts) or "0 seconds"
