"""Numbers as people read them: counts, bytes, durations; pure."""

from __future__ import annotations

import math

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_THOUSANDS = ("", "k", "M", "G", "T")
UNKNOWN = "–"


def count(value: float | None) -> str:
    """Return a count in full, with thousands separators."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """Return a count in at most five characters: 950, 12.3k, 4.5M."""
    if value is None:
        return UNKNOWN
    size, place = float(value), 0
    while abs(size) >= 999.5 and place < len(_THOUSANDS) - 1:
        size, place = size / 1000, place + 1
    return f"{_three(size)}{_THOUSANDS[place]}"


def byte_size(value: float | None) -> str:
    """Return a number of bytes in the largest unit."""
    if value is None:
        return UNKNOWN
    size, place = float(value), 0
    while abs(size) >= 1023.5 and place < len(_SIZES) - 1:
        size, place = size / 1024, place + 1
    return f"{_three(size)} {_SIZES[place]}"


def span(seconds: float | None) -> str:
    """Return a duration in one or two units: 320 ms, 4.2 s, 3 min 20 s, 5 h 3 min, 2 d 4 h."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"−{span(-seconds)}"
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{_three(seconds)} s"
    whole = round(seconds)
    for size, unit, part_size, part in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // part_size
            return f"{whole // size} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


def rate(per_second: float | None) -> str:
    """Return rows per second."""
    return UNKNOWN if per_second is None else f"{short_count(per_second)}/s"


def share(part: float | None) -> str:
    """Return a share of one in percent."""
    return UNKNOWN if part is None else f"{part:.0%}"


def _three(value: float) -> str:
    """Return a number below a thousand with at most three digits."""
    if value == int(value) or abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 9.995 else f"{value:.2g}"
