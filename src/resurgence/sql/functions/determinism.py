"""Reproducible expressions: a replayed epoch must produce the same rows.

The clock is the planning time of the epoch, which is recorded with the epoch's input. Calls whose
value depends on anything else that is not recorded (random numbers, the environment, how rows were
split into tasks, arbitrary Java code) are refused. So are texts that depend on the clock when Spark
casts them.
"""

from __future__ import annotations

import re

from sqlglot import exp

from resurgence.sql.functions.scalars import REPLAY, scalar_function
from resurgence.sql.functions.spark_template import filled, placed
from resurgence.sql.syntax.dialect import PlanningTime
from resurgence.sql.syntax.parse import Script

_BARE_WORDS: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentDate: "current_date",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.Localtimestamp: "localtimestamp",
}
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday)\b.*", re.IGNORECASE | re.DOTALL)
_TIME_ONLY = re.compile(r"\s*(T|\d+:)")
_INSTANTS = frozenset(
    {exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.DATETIME}
)
_DATE_TYPES = _INSTANTS | {exp.DType.DATE, exp.DType.TIMESTAMPNTZ}
_TIMESTAMP = re.compile(r"\btimestamp(?:_ltz)?\b", re.IGNORECASE)
_AES_MODE, _AES_VECTOR = 2, 4


def bare_word(node: exp.Expr) -> str | None:
    """Return the function that a word without parentheses calls, if any."""
    return next((name for kind, name in _BARE_WORDS.items() if isinstance(node, kind)), None)


def reproducible_call(
    name: str, arguments: list[exp.Expr], node: exp.Expr, script: Script
) -> exp.Expr | None:
    """Return the value of a function of the clock; None for a call that is reproducible as it is.
    Raise SqlError for one that is not.
    """
    known = scalar_function(name)
    if known.refusal is not None:
        reason, hint = known.refusal
        raise script.error(node, f"{name}() {reason}", hint)
    if name == "aes_encrypt":
        _check_encryption(arguments, node, script)
    if known.type_argument is not None:
        _check_parser(name, arguments[known.type_argument :], script)
    if known.casts_to is not None and len(arguments) == 1:
        _check_text(arguments[0], known.casts_to, script)
    if known.clock is None or (arguments and known.takes_arguments):
        return None
    if arguments:
        raise script.error(node, f"{name}() takes no arguments", f"Write {name}().")
    time = placed(PlanningTime(this=name), node)
    return time if known.clock == "t" else filled(known.clock, node, t=time)


def check_cast(node: exp.Cast | exp.TryCast, script: Script) -> None:
    """Raise SqlError for a cast of a text that is another instant at each evaluation."""
    _check_text(node.this, node.to.this, script)


def _check_text(value: exp.Expr, kind: exp.DType, script: Script) -> None:
    value = value.unnest()
    if kind not in _DATE_TYPES or not isinstance(value, exp.Literal) or not value.is_string:
        return
    target = "DATE" if kind == exp.DType.DATE else "TIMESTAMP"
    if _SPECIAL.fullmatch(value.name):
        message = f"'{value.name}' as a {target} reads the clock: {REPLAY}"
        raise script.error(value, message, "Use now() or current_date, the epoch's planning time.")
    if kind in _INSTANTS and _TIME_ONLY.match(value.name):
        message = f"'{value.name}' has no date, and as a {target} would get today's: {REPLAY}"
        raise script.error(value, message, "Write the date before the time.")


def _check_encryption(arguments: list[exp.Expr], node: exp.Expr, script: Script) -> None:
    """Raise SqlError for encryption with an initialization vector that Spark generates."""
    modes = arguments[_AES_MODE : _AES_MODE + 1]
    is_ecb = any(isinstance(each, exp.Literal) and each.name.upper() == "ECB" for each in modes)
    if not is_ecb and len(arguments) <= _AES_VECTOR:
        message = f"aes_encrypt() without an initialization vector is random: {REPLAY}"
        raise script.error(node, message, "Pass the vector as its fifth argument.")


def _check_parser(name: str, arguments: list[exp.Expr], script: Script) -> None:
    """Raise SqlError if timestamps are read such that a time without a date would get today's.
    `arguments` begin with the type.
    """
    kind = arguments[0] if arguments else None
    if not isinstance(kind, exp.Literal) or not _TIMESTAMP.search(kind.name):
        return
    if not any("timestampformat" in each.sql().lower() for each in arguments[1:]):
        message = f"{name}() adds today's date to a time without a date: {REPLAY}"
        raise script.error(kind, message, "Read it as STRING, and CAST that AS TIMESTAMP.")
