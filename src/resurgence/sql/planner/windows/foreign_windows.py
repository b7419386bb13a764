"""Translation of the window functions of Flink and Spark into native calls.

| written | becomes |
|---|---|
| `TUMBLE_START(at, i)`, `HOP_END(at, s, w)`, ... | `tumble(at, i).start`, `hop(at, s, w).end`, ... |
| `TUMBLE_ROWTIME(at, i)`, ... | the end of the window minus one millisecond |
| `window(at, w)`, `window(at, w, s)`, `window(at, w, s, o)` | `tumble(at, w)`, `hop(at, s, w)`, `hop(at, s, w, o)` |
| `session_window(at, g)` | `session(at, g)`, named `session_window` |
| `window_time(w)` | the end of the window minus one microsecond |

`TUMBLE(at, i)` in GROUP BY needs no translation: native calls also accept event time as the first
argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from resurgence.sql.functions.spark_template import call, placed
from resurgence.sql.planner.windows.window_call import NAMED
from resurgence.sql.syntax.parse import Script

_PART = re.compile(r"(tumble|hop|session)_(start|end|rowtime|proctime)")
_LENGTHS = {"window": (2, 3, 4), "session_window": (2,), "window_time": (1,)}
_EXAMPLES = {
    "window": "Specify the width and the slide, as in window(at, '10 minutes', '5 minutes').",
    "session_window": "Specify the gap, as in session_window(at, '5 minutes').",
    "window_time": "Write it as in window_time(window).",
}


def with_native_windows(
    statement: exp.Expr, script: Script, is_user_defined: Callable[[str], bool]
) -> exp.Expr:
    """Replace foreign window calls by native ones, in place, and return the statement. Calls of
    user-defined functions are unchanged.
    """
    for node in list(statement.find_all(exp.Anonymous)):
        if is_user_defined(node.name):
            continue
        native = _native(node, script)
        if native is node:
            continue
        if isinstance(node.parent, exp.Select) and native.meta.get(NAMED) is None:
            native = placed(exp.alias_(native, node.name.lower(), quoted=True, copy=False), node)
        node.replace(native)
    return statement


def window_part(window: exp.Expr, part: str, place: exp.Expr) -> exp.Expr:
    """Return the start, the end or the row time of a window, by Flink's definition."""
    field = "start" if part == "start" else "end"
    dot = placed(exp.Dot(this=window, expression=exp.to_identifier(field, quoted=True)), place)
    return dot if part in ("start", "end") else _before(dot, "MILLISECOND", place)


def _native(node: exp.Anonymous, script: Script) -> exp.Expr:
    name, arguments = node.name.lower(), node.expressions
    if found := _PART.fullmatch(name):
        kind, part = found.groups()
        if part == "proctime":
            hint = f"Use {kind.upper()}_ROWTIME, the event time of the window's rows."
            raise script.error(node, f"{name.upper()} is not supported", hint)
        return window_part(call(kind, node, *arguments), part, node)
    if name not in _LENGTHS:
        return node
    if len(arguments) not in _LENGTHS[name]:
        message = f"wrong number of arguments for {name}(): {len(arguments)}"
        raise script.error(node, message, _EXAMPLES[name])
    if name == "window_time":
        end = exp.to_identifier("end", quoted=True)
        return _before(
            placed(exp.Dot(this=arguments[0], expression=end), node), "MICROSECOND", node
        )
    if name == "session_window":
        session = call("session", node, *arguments)
        session.meta[NAMED] = name
        return session
    time, width, *rest = arguments
    made = call("hop", node, time, rest[0], width, *rest[1:]) if rest else None
    made = made or call("tumble", node, time, width)
    made.meta[NAMED] = name
    return made


def _before(end: exp.Expr, unit: str, place: exp.Expr) -> exp.Expr:
    interval = exp.Interval(this=exp.Literal.string("1"), unit=exp.var(unit))
    return placed(exp.Paren(this=exp.Sub(this=end, expression=interval)), place)
