"""Calls that define a time window: tumble(), hop(), cumulate() and session().

The first argument can be the event time or processing time column, as in Flink and Spark. The last
argument of all but session() can be an offset: windows are aligned to 1970-01-01 00:00 UTC plus the
offset. Rows without event time are windowed by processing time.
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
"""The metadata key of a call for the default name of its window, if that is not `window`."""


@dataclass(frozen=True)
class _Syntax:
    """The arguments of a window call, without the time column."""

    hint: str
    intervals: int = 1
    takes_offset: bool = True


_SYNTAX: dict[str, _Syntax] = {
    "tumble": _Syntax("Specify the width, as in tumble(INTERVAL '1 hour')."),
    "hop": _Syntax(
        "Specify the slide and the width, as in hop(INTERVAL '10 minutes', INTERVAL '1 hour').",
        intervals=2,
    ),
    "cumulate": _Syntax(
        "Specify the step and the width, as in cumulate(INTERVAL '10 minutes', INTERVAL '1 hour').",
        intervals=2,
    ),
    "session": _Syntax(
        "Specify the gap, as in session(INTERVAL '30 minutes').", takes_offset=False
    ),
}


@dataclass(frozen=True)
class WindowCall:
    """The window that a call defines."""

    kind: WindowKind
    width_micros: int
    """For a session, the gap. For cumulating windows, the width of the longest."""
    slide_micros: int | None = None
    """For cumulating windows, the step."""
    offset_micros: int = 0
    by_processing_time: bool = False

    @property
    def common_width_micros(self) -> int | None:
        """The width of all windows if it is fixed, else None."""
        return self.width_micros if WINDOW_KINDS[self.kind].has_fixed_width else None


def is_window_call(node: exp.Expr, expressions: Expressions) -> bool:
    """Return whether a node is a window call."""
    return expressions.call_kind(node) is Call.WINDOW


def window_kind(node: exp.Expr) -> WindowKind:
    """Return the kind of window that a call defines."""
    kind: WindowKind = node.name.lower()  # type: ignore[assignment]
    return kind


def window_name(node: exp.Expr) -> str:
    """Return the default name of the window that a call defines."""
    name: str = node.meta.get(NAMED, WINDOW)
    return name


def window_call(node: exp.Expr, source: Relation, expressions: Expressions) -> WindowCall:
    """Return the window that a call defines over the rows of a relation."""
    arguments = list(node.expressions)
    by_processing_time = not source.has_event_time
    if arguments and not _is_interval(arguments[0]):
        by_processing_time = _is_processing_time(arguments.pop(0), source, expressions)
    made = _window(node, arguments, expressions.script)
    return replace(made, by_processing_time=by_processing_time)


def _window(node: exp.Expr, arguments: list[exp.Expr], script: Script) -> WindowCall:
    """Return the window that a call defines by its arguments without the time column."""
    kind = window_kind(node)
    syntax = _SYNTAX[kind]
    count, most = syntax.intervals, syntax.intervals + syntax.takes_offset
    if not count <= len(arguments) <= most:
        takes = "two intervals" if count == 2 else "one interval"
        more = " and optionally an offset" if most > count else ""
        raise script.error(node, f"{kind}() takes {takes}{more}", syntax.hint)
    spans = [interval_micros(each, script) for each in arguments[:count]]
    offset = any_interval_micros(arguments[count], script) if len(arguments) > count else 0
    if kind == "session":
        return WindowCall("session", spans[0])
    slide, width = spans if count == 2 else (spans[0], spans[0])
    if slide > width:
        what = "step" if kind == "cumulate" else "slide"
        message = f"the {what} of {kind}() must not be longer than its width"
        raise script.error(node, message, syntax.hint)
    if slide == width:
        return WindowCall("tumble", width, offset_micros=offset % width)
    if kind == "hop":
        return WindowCall("hop", width, slide, offset % slide)
    if width % slide:
        message = "the width of cumulate() must be a multiple of its step"
        raise script.error(node, message, syntax.hint)
    return WindowCall("cumulate", width, slide, offset % width)


def check_input(source: Relation, kind: WindowKind, place: exp.Expr, script: Script) -> None:
    """Raise SqlError unless the rows of a relation can be windowed."""
    if source.kind is RowKind.UPDATING:
        message = f"{kind}() requires an append-only input, but this input is a changelog"
        hint = "Apply the window before rows are aggregated or joined."
        raise script.error(place, message, hint)


def _is_interval(node: exp.Expr) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Add):
        return _is_interval(node.this)
    return isinstance(node, exp.Interval | exp.Literal)


def _is_processing_time(node: exp.Expr, source: Relation, expressions: Expressions) -> bool:
    """Return whether an expression is processing time. Raise SqlError unless it is processing time
    or the event time of the rows of a relation.
    """
    bound = to_spark(expressions.bound(node, source).unnest())
    if source.kind is RowKind.CLOSED and source.window_part(bound) in (
        WindowPart.TIME,
        WindowPart.WHOLE,
    ):
        return False
    times = [each for each in source.attributes if each.is_event_time]
    if bound in map(column_sql, times):
        return False
    is_appended = source.kind is RowKind.APPENDED
    processing_times = [each for each in source.attributes if each.is_processing_time]
    if is_appended and bound in (f"`{PLANNED_AT}`", *map(column_sql, processing_times)):
        return True
    hint = f"Declare it with WATERMARK FOR {node.name} AS {node.name} - INTERVAL '5 seconds'."
    if times:
        hint = f"Use '{times[0].name}'."
    elif source.kind is RowKind.CLOSED:
        hint = "Use window_time, or window.end minus one millisecond."
    raise expressions.script.error(
        node, f"'{node.sql(comments=False)}' is not the event time of the input", hint
    )
