"""Durations as text: `500ms`, `15s`, `1.5h`, `10 seconds`, `1 hour 30 minutes`.

INTERVAL literals of SQL are parsed in `sql/syntax/intervals.py`.
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


def parse_duration(value: object) -> timedelta:
    """Parse a duration. Raise ValueError, with examples, if the text is not one."""
    if isinstance(value, timedelta):
        return value
    rest, micros = str(value).strip(), Decimal(0)
    while match := _PART.match(rest):
        micros += Decimal(match[1]) * _UNITS[match[2] or _SHORT[match[3]]]
        rest = rest[match.end() :]
        if not rest:
            try:
                return timedelta(microseconds=int(micros))
            except OverflowError as error:
                raise ValueError(f"'{value}' is longer than the maximum duration") from error
    raise ValueError(f"'{value}' is not a duration such as 500ms, 15s, 2m or 1h")


def duration_text(micros: int) -> str:
    """Format microseconds in the largest units, as in `1 hour 30 minutes`. `parse_duration` can
    read the result.
    """
    parts = []
    for unit, size in _UNITS.items():
        count, micros = divmod(micros, size)
        if count:
            parts.append(f"{count} {unit}" if count == 1 else f"{count} {unit}s")
    return " ".join(parts) or "0 seconds"
