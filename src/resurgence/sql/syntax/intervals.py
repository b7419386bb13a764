"""The length of an interval: an INTERVAL literal, or plain text where an interval is expected."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.sql.syntax.parse import Script

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "w": "week",
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_CLOCK = re.compile(r"\s*([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?\s*")
_SPARK = re.compile(
    r"(\s*[+-]?(\d+\s+(year|month|week|day|hour|minute|millisecond|microsecond)|\d+(\.\d+)?\s+second)s?)+\s*",
    re.IGNORECASE,
)
"""Intervals that Spark can read."""
_EXAMPLE = "Write it as in INTERVAL '1 hour' or INTERVAL '90 seconds'."


def interval_micros(node: exp.Expr, script: Script) -> int:
    """Return the interval in microseconds; raise SqlError unless it is a positive literal of fixed
    length. The word INTERVAL is optional, as in `tumble('5 seconds')`.
    """
    micros = _total(node, script)
    if micros <= 0 or micros != int(micros):
        raise script.error(node, "the interval must be a positive number of microseconds", _EXAMPLE)
    return int(micros)


def any_interval_micros(node: exp.Expr, script: Script) -> int:
    """Return the interval in microseconds, which can be negative or zero."""
    micros = _total(node, script)
    if micros != int(micros):
        raise script.error(node, "the interval must be a whole number of microseconds", _EXAMPLE)
    return int(micros)


def spark_interval(node: exp.Interval, script: Script) -> exp.Interval:
    """Return an INTERVAL literal in a spelling that Spark can read; raise SqlError if invalid."""
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        return node
    text = f"{node.name} {unit.name}" if unit else node.name
    if _SPARK.fullmatch(text):
        return node
    seconds = _micros(text, node, script) / _MICROS["second"]
    return exp.Interval(this=exp.Literal.string(f"{seconds:f}"), unit=exp.var("SECOND"))


def offset_micros(node: exp.Expr) -> int | None:
    """Return an INTERVAL literal of fixed length in microseconds; None for anything else."""
    if not _is_interval(node):
        return None
    try:
        micros = _total(node, Script("", ()))
    except SqlError:
        return None
    return int(micros) if micros == int(micros) else None


def _is_interval(node: exp.Expr) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Add):
        return _is_interval(node.this) and _is_interval(node.expression)
    return isinstance(node, exp.Interval)


def _total(node: exp.Expr, script: Script) -> Decimal:
    return sum((_micros(each, node, script) for each in _literals(node, script)), start=Decimal(0))


def _literals(node: exp.Expr, script: Script) -> list[str]:
    """Return the interval as texts of the form `1 hour`; several in a row are parsed as a sum."""
    node = node.unnest()
    if isinstance(node, exp.Add):
        return [*_literals(node.this, script), *_literals(node.expression, script)]
    if isinstance(node, exp.Literal) and node.is_string:
        return [node.name]
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise script.error(node, "an INTERVAL literal is required here", _EXAMPLE)
    unit = node.args.get("unit")
    if unit is not None and not isinstance(unit, exp.Var):
        raise script.error(node, "intervals with TO are not supported here", _EXAMPLE)
    return [f"{node.name} {unit.name}" if unit else node.name]


def _micros(text: str, node: exp.Expr, script: Script) -> Decimal:
    total, offset = Decimal(0), 0
    while match := _PART.match(text, offset):
        unit = _unit(match[2].lower())
        if unit in ("month", "quarter", "year"):
            raise script.error(
                node, f"a {unit} has no fixed length", "Use days, hours, minutes or seconds."
            )
        if unit not in _MICROS:
            raise script.error(
                node, f"there is no unit '{match[2].lower()}'", f"Use one of {', '.join(_MICROS)}."
            )
        total += Decimal(match[1]) * _MICROS[unit]
        offset = match.end()
    if clock := _CLOCK.fullmatch(text, offset):
        hours, minutes, seconds = (Decimal(clock[each] or 0) for each in (2, 3, 4))
        micros = ((hours * 60 + minutes) * 60 + seconds) * _MICROS["second"]
        return total - micros if clock[1] == "-" else total + micros
    if offset < len(text) or not text:
        raise script.error(node, f"'{text}' is not an interval", _EXAMPLE)
    return total


def _unit(word: str) -> str:
    return _SHORT.get(word) or _SHORT.get(word.removesuffix("s")) or word.removesuffix("s")
