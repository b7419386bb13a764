"""The length of an interval: an INTERVAL literal, or plain text where an interval is meant."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.sql.parse import Script

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
_EXAMPLE = "write it as in INTERVAL '1 hour' or INTERVAL '90 seconds'"


def interval_micros(node: exp.Expr, script: Script) -> int:
    """The interval in microseconds; raises SqlError unless it is a positive literal of fixed
    length. It may lack the word INTERVAL, as in `tumble('5 seconds')`.
    """
    micros = sum(
        (_micros(each, node, script) for each in _literals(node, script)), start=Decimal(0)
    )
    if micros <= 0 or micros != int(micros):
        raise script.error(node, "the interval must be a positive number of microseconds", _EXAMPLE)
    return int(micros)


def offset_micros(node: exp.Expr) -> int | None:
    """An INTERVAL literal of fixed length in microseconds; None for anything else."""
    try:
        nowhere = Script("", ())
        return interval_micros(node, nowhere) if isinstance(node.unnest(), exp.Interval) else None
    except SqlError:
        return None


def _literals(node: exp.Expr, script: Script) -> list[str]:
    """The interval as texts of the form `1 hour`; several written in a row come as a sum."""
    node = node.unnest()
    if isinstance(node, exp.Add):
        return [*_literals(node.this, script), *_literals(node.expression, script)]
    if isinstance(node, exp.Literal) and node.is_string:
        return [node.name]
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise script.error(node, "an INTERVAL literal must stand here", _EXAMPLE)
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
                node, f"a {unit} has no fixed length", "use days, hours, minutes or seconds"
            )
        if unit not in _MICROS:
            raise script.error(
                node, f"there is no unit '{match[2].lower()}'", "known: " + ", ".join(_MICROS)
            )
        total += Decimal(match[1]) * _MICROS[unit]
        offset = match.end()
    if offset < len(text) or not text:
        raise script.error(node, f"'{text}' is not an interval", _EXAMPLE)
    return total


def _unit(word: str) -> str:
    return _SHORT.get(word) or _SHORT.get(word.removesuffix("s")) or word.removesuffix("s")
