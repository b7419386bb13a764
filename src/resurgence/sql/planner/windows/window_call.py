"""A call that makes a window of time: tumble(), hop(), cumulate() or session().

Each may begin with the column that is event time or processing time, as Flink and Spark write it, and
all but session() may end with an offset: windows are aligned to 1970-01-01 00:00 UTC and so much later.
Rows without event time are windowed by processing time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.graph.specs.window_aggregate import WINDOW_KINDS, WindowKind
from resurgence.graph.values import PLANNED_AT
from resurgence.sql.catalog.relation import Relation, RowKind, WindowPart, column_sql
from resurgence.sql.functions.registry import Call
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.syntax.dialect import to_spark
from resurgence.sql.syntax.intervals import any_interval_micros, interval_micros
from resurgence.sql.syntax.parse import Script

WINDOW = "window"
"""The column of a window aggregate that holds the window."""

NAMED = "window_name"
"""Where a call keeps the name of its window, if a query without an alias for it says another one
than `window`.
"""


@dataclass(frozen=True)
class _Syntax:
    """What a call that makes a window takes, without the time."""

    example: str
    intervals: int = 1
    takes_offset: bool = True


_SYNTAX: dict[str, _Syntax] = {
    "tumble": _Syntax("tumble(INTERVAL '1 hour'): the width"),
    "hop": _Syntax(
        "hop(INTERVAL '10 minutes', INTERVAL '1 hour'): the slide and the width", intervals=2
    ),
    "cumulate": _Syntax(
        "cumulate(INTERVAL '10 minutes', INTERVAL '1 hour'): the step and the width", intervals=2
    ),
    "session": _Syntax("session(INTERVAL '30 minutes'): the gap", takes_offset=False),
}


@dataclass(frozen=True)
class WindowCall:
    """The window that a call makes."""

    kind: WindowKind
    width_micros: int
    """Of a session: the gap. Of cumulating windows: the longest."""
    slide_micros: int | None = None
    """Of cumulating windows: the step."""
    offset_micros: int = 0
    by_processing_time: bool = False

    @property
    def common_width_micros(self) -> int | None:
        """The width of all windows, if they are all as wide."""
        return self.width_micros if WINDOW_KINDS[self.kind].has_fixed_width else None


def is_window_call(node: exp.Expr, expressions: Expressions) -> bool:
    """Whether this is a call that makes a window."""
    return expressions.call_kind(node) is Call.WINDOW


def window_kind(node: exp.Expr) -> WindowKind:
    """The kind of window that a call makes."""
    kind: WindowKind = node.name.lower()  # type: ignore[assignment]
    return kind


def window_name(node: exp.Expr) -> str:
    """The name of the window that a call makes, where the query gives it none."""
    name: str = node.meta.get(NAMED, WINDOW)
    return name


def window_call(node: exp.Expr, source: Relation, expressions: Expressions) -> WindowCall:
    """The window that a call makes over the rows of a relation."""
    arguments = list(node.expressions)
    by_processing_time = not source.has_event_time
    if arguments and not _is_interval(arguments[0]):
        by_processing_time = _is_processing_time(arguments.pop(0), source, expressions)
    made = _window(node, arguments, expressions.script)
    return replace(made, by_processing_time=by_processing_time)


def _window(node: exp.Expr, arguments: list[exp.Expr], script: Script) -> WindowCall:
    """The window that a call makes of its arguments without the time."""
    kind = window_kind(node)
    syntax = _SYNTAX[kind]
    count, most = syntax.intervals, syntax.intervals + syntax.takes_offset
    if not count <= len(arguments) <= most:
        takes = "two intervals" if count == 2 else "one interval"
        more = ", and an offset" if most > count else ""
        raise script.error(node, f"{kind}() takes {takes}{more}", f"as in {syntax.example}")
    spans = [interval_micros(each, script) for each in arguments[:count]]
    offset = any_interval_micros(arguments[count], script) if len(arguments) > count else 0
    if kind == "session":
        return WindowCall("session", spans[0])
    slide, width = spans if count == 2 else (spans[0], spans[0])
    if slide > width:
        message, what = "a hop whose slide is longer than its width leaves rows out", "slide"
        if kind == "cumulate":
            message, what = "a step is no longer than the width of its windows", "step"
        raise script.error(node, message, f"the {what} comes first: {syntax.example}")
    if slide == width:
        return WindowCall("tumble", width, offset_micros=offset % width)
    if kind == "hop":
        return WindowCall("hop", width, slide, offset % slide)
    if width % slide:
        message = "the width of a cumulate window is a multiple of its step"
        raise script.error(node, message, f"as in {syntax.example}")
    return WindowCall("cumulate", width, slide, offset % width)


def check_input(source: Relation, kind: WindowKind, place: exp.Expr, script: Script) -> None:
    """Raises SqlError unless rows of a relation can be windowed."""
    if source.kind is RowKind.UPDATING:
        message = f"{kind}() takes rows that stay, and those read here may be taken back"
        raise script.error(place, message, "window the rows before they are aggregated or joined")


def _is_interval(node: exp.Expr) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Add):
        return _is_interval(node.this)
    return isinstance(node, exp.Interval | exp.Literal)


def _is_processing_time(node: exp.Expr, source: Relation, expressions: Expressions) -> bool:
    """Whether an expression is processing time; raises SqlError unless it is that or the event time
    of the rows of a relation.
    """
    bound = to_spark(expressions.bound(node, source).unnest())
    if source.kind is RowKind.CLOSED and source.told(bound) in (WindowPart.TIME, WindowPart.WHOLE):
        return False
    times = [each for each in source.attributes if each.is_event_time]
    if bound in map(column_sql, times):
        return False
    is_appended = source.kind is RowKind.APPENDED
    processing_times = [each for each in source.attributes if each.is_processing_time]
    if is_appended and bound in (f"`{PLANNED_AT}`", *map(column_sql, processing_times)):
        return True
    hint = f"declare it with WATERMARK FOR {node.name} AS {node.name} - INTERVAL '5 seconds'"
    if times:
        hint = f"use '{times[0].name}'"
    elif source.kind is RowKind.CLOSED:
        hint = "the time of rows of a window is window_time, or window.end less a millisecond"
    raise expressions.script.error(
        node, f"'{node.sql(comments=False)}' is not the event time of the rows read here", hint
    )
