"""GROUP BY: the window and the keys that its items name by alias, by position or by expression."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.model import Expression
from resurgence.sql.dialect import to_spark
from resurgence.sql.expressions import Expressions
from resurgence.sql.functions import Call
from resurgence.sql.intervals import interval_micros
from resurgence.sql.relation import Relation

WINDOW = "window"
"""The column of a window aggregate that holds the window."""

_NO_WINDOW_HINT = "add tumble(INTERVAL '1 hour') to GROUP BY"


@dataclass(frozen=True)
class Grouping:
    """A window of event time and the keys beside it."""

    width_micros: int
    keys: tuple[Expression, ...]
    window_names: frozenset[str]
    """The names, in lower case, by which the query may call the window."""


def read_grouping(select: exp.Select, source: Relation, expressions: Expressions) -> Grouping:
    """The grouping of an aggregated query; raises SqlError unless it has exactly one window."""
    script = expressions.script
    group = select.args.get("group")
    if group is None:
        found = [each for item in _results(select) for each in calls(item, expressions)]
        for each in found:
            if expressions.call_kind(each) is Call.TUMBLE:
                expressions.check(each)
        raise _without_window(found[0], expressions)
    for key, value in group.args.items():
        if key != "expressions" and value:
            raise script.error(
                group, f"GROUP BY {key.upper()} is not supported yet", "name the columns"
            )
    items: list[exp.Expr] = [
        _target(each, select, source, expressions) for each in group.expressions
    ]
    windows = [node for node in items if expressions.call_kind(node) is Call.TUMBLE]
    if not windows:
        for node in items:
            if expressions.call_kind(node) is Call.OTHER_WINDOW:
                expressions.check(node)
        raise _without_window(group, expressions)
    widths = {tumble_micros(node, expressions) for node in windows}
    if len(widths) > 1:
        raise script.error(windows[1], "a query has one window", "write one query for each window")
    keys = _keys([node for node in items if node not in windows], source, expressions)
    aliases = [
        each.alias.lower()
        for each in select.expressions
        if _is_tumble(each, expressions) and each.alias
    ]
    return Grouping(widths.pop(), keys, frozenset(aliases or [WINDOW]))


def is_aggregated(select: exp.Select, expressions: Expressions) -> bool:
    """Whether the query groups rows."""
    return bool(select.args.get("group")) or any(
        calls(each, expressions) for each in _results(select)
    )


def calls(node: exp.Expr, expressions: Expressions) -> list[exp.Expr]:
    """The calls in the expression that make its query an aggregated one."""
    kinds = {Call.AGGREGATE, Call.UNSUPPORTED_AGGREGATE, Call.TUMBLE}
    found = node.find_all(exp.Anonymous)
    return [each for each in found if expressions.call_kind(each) in kinds and not _is_over(each)]


def tumble_micros(node: exp.Expr, expressions: Expressions) -> int:
    """The width in a tumble() call."""
    arguments = node.expressions
    if len(arguments) != 1:
        message = "tumble() takes one argument, the width of the window"
        raise expressions.script.error(node, message, "as in tumble(INTERVAL '1 hour')")
    return interval_micros(arguments[0], expressions.script)


def _results(select: exp.Select) -> list[exp.Expr]:
    having = select.args.get("having")
    return [*select.expressions, *([having] if having else [])]


def _without_window(node: exp.Expr, expressions: Expressions) -> SqlError:
    message = "an aggregate needs a window: without one its groups would never be complete"
    return expressions.script.error(node, message, _NO_WINDOW_HINT)


def _is_over(node: exp.Expr) -> bool:
    parent = node.parent.parent if isinstance(node.parent, exp.Filter) else node.parent
    return isinstance(parent, exp.Window)


def _is_tumble(item: exp.Expr, expressions: Expressions) -> bool:
    return expressions.call_kind(item.unalias()) is Call.TUMBLE


def _target(
    node: exp.Expr, select: exp.Select, source: Relation, expressions: Expressions
) -> exp.Expr:
    """The expression that an item of GROUP BY stands for.

    A name means a column of the input before it means an alias, as in Spark, except that an alias
    of the window always means the window.
    """
    selected: list[exp.Expr] = select.expressions
    if isinstance(node, exp.Literal) and node.is_int:
        index = int(node.name)
        if not 1 <= index <= len(selected):
            message = f"GROUP BY {index}: the select list has {len(selected)} items"
            raise expressions.script.error(node, message)
        return selected[index - 1].unalias()
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        aliased = [each for each in selected if each.alias.lower() == node.name.lower()]
        tumbles = [each for each in aliased if _is_tumble(each, expressions)]
        if tumbles or (aliased and not source.find(node.name)):
            return (tumbles or aliased)[0].unalias()
    return node


def _keys(
    nodes: list[exp.Expr], source: Relation, expressions: Expressions
) -> tuple[Expression, ...]:
    keys: dict[str, Expression] = {}
    taken = {WINDOW}
    for number, node in enumerate(nodes, start=1):
        bound = expressions.bound(node.unnest(), source)
        sql = to_spark(bound)
        if sql in keys:
            continue
        # Named after the column and not after an alias, so that renaming the output keeps the
        # operator.
        name = bound.name if isinstance(bound, exp.Column) else f"key_{number}"
        if name.lower() in taken:
            name = f"key_{number}"
        taken.add(name.lower())
        keys[sql] = Expression(name=name, sql=sql, position=expressions.script.position(node))
    return tuple(keys.values())
