"""Guards around casts of texts to TIMESTAMP in which Spark would read the clock.

Spark adds today's date to a text with a time and no date, such as '12:00', and interprets a
constant text such as 'now' as the current instant. With a guard around the operand, a text without
a date fails like any malformed text, or is null in a TRY_CAST. A guarded operand is not a constant
to Spark, so 'now' is malformed as well. `clock_reads` decides which expressions need guards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from resurgence.sql.functions.scalars import scalar_function

TIME_ONLY = r"^\\s*(T|\\d+:)"
"""A text without a date, as a regular expression inside a string literal of Spark SQL."""
_FAILURE = "raise_error('cannot cast a time without a date to TIMESTAMP')"
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`|[A-Za-z_][A-Za-z_0-9]*\(|[(),]", re.DOTALL)
_CONSTANT = re.compile(r"\s*(?:'(?:[^'\\]|\\.)*'|-?[\d.]+L?)\s*", re.DOTALL)
_CASTS = frozenset({"cast", "try_cast"})
_TIMESTAMP_AT = {
    **dict.fromkeys(("hour", "minute", "second", "date_format"), 0),
    **dict.fromkeys(("from_utc_timestamp", "to_utc_timestamp"), 0),
    **dict.fromkeys(("unix_seconds", "unix_millis", "unix_micros"), 0),
    **dict.fromkeys(("date_trunc", "date_part", "datepart"), 1),
}
"""Functions that take a timestamp, with the index of that argument."""


def guarded(sql: str) -> str:
    """Return Spark SQL in which no explicit cast of a text reads the clock."""
    parts: list[str] = []
    done = 0
    for name, start, commas, end in _calls(sql):
        inner = [
            sql[one + 1 : other] for one, other in zip(commas, (*commas[1:], end), strict=True)
        ]
        parts.append(sql[done:start])
        parts.append(_guarded_call(name, sql[start : commas[0] + 1], list(map(guarded, inner))))
        done = end + 1
    return "".join([*parts, sql[done:]])


def _guarded_call(name: str, opening: str, arguments: list[str]) -> str:
    """Return a guarded call. Its arguments are guarded already, and include surrounding blanks."""
    lower = name.lower()
    is_try = lower.startswith("try_")
    if lower in _CASTS and len(arguments) == 1:
        operand, word, kind = arguments[0].rpartition(" AS ")
        if kind == "TIMESTAMP":
            arguments = [f"{_guard(operand, is_try)}{word}{kind}"]
        elif "TIMESTAMP" in re.findall(r"\w+", kind):
            arguments = [f"{_guard_nested(operand)}{word}{kind}"]
    elif lower == "extract" and len(arguments) == 1:
        field, word, operand = arguments[0].partition(" FROM ")
        arguments = [f"{field}{word}{_guard(operand, is_try)}" if word else arguments[0]]
    elif _casts_to_timestamp(lower) and len(arguments) == 1:
        arguments = [_guard(arguments[0], is_try)]
    elif lower in _TIMESTAMP_AT and len(arguments) > _TIMESTAMP_AT[lower]:
        place = _TIMESTAMP_AT[lower]
        arguments[place] = f" {_guard(arguments[place].strip(), is_try)}"
    return f"{opening}{','.join(arguments)})"


def _guard(operand: str, is_try: bool) -> str:
    """Return SQL for the operand that fails if it is a text without a date."""
    if _CONSTANT.fullmatch(operand) or _is_timestamp(operand):
        return operand
    kind = f"typeof({operand})"
    is_text = f"(startswith({kind}, 'string') OR {kind} = 'variant')"
    test = f"{is_text} AND CAST({operand} AS STRING) RLIKE '{TIME_ONLY}'"
    if is_try:
        # The unreachable failure stops Spark from treating the operand as a constant.
        return f"IF({kind} = '', {_FAILURE}, IF({test}, NULL, {operand}))"
    return f"IF({test}, {_FAILURE}, {operand})"


def _is_timestamp(operand: str) -> bool:
    """Return whether an operand is just a cast to TIMESTAMP."""
    outermost = next(_calls(operand), None)
    if outermost is None or (outermost[1], outermost[3]) != (0, len(operand) - 1):
        return False
    name = outermost[0].lower()
    return _casts_to_timestamp(name) or (name in _CASTS and operand.endswith(" AS TIMESTAMP)"))


def _casts_to_timestamp(function: str) -> bool:
    """Return whether a function casts a text if it has no format argument."""
    return scalar_function(function).casts_to is exp.DType.TIMESTAMP


def _guard_nested(operand: str) -> str:
    failure = "raise_error('cannot cast nested texts to TIMESTAMP; use transform()')"
    return f"IF(contains(typeof({operand}), 'string'), {failure}, {operand})"


def _calls(sql: str) -> Iterator[tuple[str, int, list[int], int]]:
    """Yield the outermost calls in a text: the name, its start, the start of each argument (the
    parenthesis or comma before it), and the closing parenthesis.
    """
    open_calls: list[tuple[str, int]] = []
    commas: list[int] = []
    for token in _TOKEN.finditer(sql):
        text = token[0]
        if text[-1] == "(":
            name = text[:-1]
            if name and not any(each for each, _ in open_calls):
                commas = [token.end() - 1]
                open_calls.append((name, token.start()))
            else:
                open_calls.append(("", token.start()))
        elif text == "," and open_calls and open_calls[-1][0]:
            commas.append(token.start())
        elif text == ")" and open_calls:
            name, start = open_calls.pop()
            if name:
                yield name, start, commas, token.start()
