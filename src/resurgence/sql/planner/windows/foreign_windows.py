"""Window functions of Flink and Spark as calls of our own.

| written | becomes |
|---|---|
| `TUMBLE_START(at, i)`, `HOP_END(at, s, w)`, ... | `tumble(at, i).start`, `hop(at, s, w).end`, ... |
| `TUMBLE_ROWTIME(at, i)`, ... | the end of the window less a millisecond |
| `window(at, w)`, `window(at, w, s)`, `window(at, w, s, o)` | `tumble(at, w)`, `hop(at, s, w)`, `hop(at, s, w, o)` |
| `session_window(at, g)` | `session(at, g)`, called `session_window` |
| `window_time(w)` | the end of the window less a microsecond |

`TUMBLE(at, i)` in GROUP BY needs no change: our own calls may begin with event time, too.
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
    "window": "as in window(at, '10 minutes', '5 minutes'): the width and the slide",
    "session_window": "as in session_window(at, '5 minutes'): the gap",
    "window_time": "as in window_time(window)",
}


def own_windows(statement: exp.Expr, script: Script, is_own: Callable[[str], bool]) -> exp.Expr:
    """The statement with our own window calls, changed in place. `is_own` knows the functions of the
    user's.
    """
    for node in list(statement.find_all(exp.Anonymous)):
        if is_own(node.name):
            continue
        meant = _meant(node, script)
        if meant is node:
            continue
        if isinstance(node.parent, exp.Select) and meant.meta.get(NAMED) is None:
            meant = placed(exp.alias_(meant, node.name.lower(), quoted=True, copy=False), node)
        node.replace(meant)
    return statement


def window_part(window: exp.Expr, part: str, place: exp.Expr) -> exp.Expr:
    """The start, the end or the time of a window, as Flink counts it."""
    field = "start" if part == "start" else "end"
    dot = placed(exp.Dot(this=window, expression=exp.to_identifier(field, quoted=True)), place)
    return dot if part in ("start", "end") else _before(dot, "MILLISECOND", place)


def _meant(node: exp.Anonymous, script: Script) -> exp.Expr:
    name, arguments = node.name.lower(), node.expressions
    if found := _PART.fullmatch(name):
        kind, part = found.groups()
        if part == "proctime":
            hint = f"use {kind.upper()}_ROWTIME, the time of the window's rows"
            raise script.error(node, f"{name.upper()} is not supported", hint)
        return window_part(call(kind, node, *arguments), part, node)
    if name not in _LENGTHS:
        return node
    if len(arguments) not in _LENGTHS[name]:
        message = f"{name}() does not take {len(arguments)} arguments"
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
