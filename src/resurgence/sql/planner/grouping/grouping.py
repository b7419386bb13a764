"""GROUP BY: the window, the keys and the grouping sets, whose items are aliases, positions or
expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from resurgence.graph.values import Expression
from resurgence.sql.catalog.relation import Relation
from resurgence.sql.functions.registry import Call
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.grouping.grouping_sets import (
    MAX_COLUMNS,
    SET,
    GroupingSets,
    has_sets,
    written_items,
    written_sets,
)
from resurgence.sql.planner.windows.window_call import (
    WINDOW,
    WindowCall,
    is_window_call,
    window_call,
    window_name,
)
from resurgence.sql.syntax.dialect import to_spark

_GROUPING_CALLS = frozenset({"grouping", "grouping_id"})


@dataclass(frozen=True)
class Grouping:
    """The keys of an aggregate, and its window if it has one."""

    window: WindowCall | None
    keys: tuple[Expression, ...]
    window_names: frozenset[str]
    """The names, in lower case, by which the query can refer to the window."""
    key_names: Mapping[str, str]
    """The name of each key by its expression in Spark SQL."""
    sets: GroupingSets | None = None


def read_grouping(select: exp.Select, source: Relation, expressions: Expressions) -> Grouping:
    """Return the grouping of an aggregated query."""
    script = expressions.script
    group = select.args.get("group")
    if group is None:
        found = [each for item in _results(select) for each in calls(item, expressions)]
        for each in found:
            if is_window_call(each, expressions):
                expressions.check(each)
        return Grouping(None, (), frozenset(), {})
    if group.args.get("totals"):
        raise script.error(group, "WITH TOTALS is not supported", "Use GROUPING SETS.")
    if group.args.get("all"):
        items = _all(select, expressions)
    else:
        items = [_target(each, select, source, expressions) for each in written_items(group)]
    windows = [node for node in items if is_window_call(node, expressions)]
    made = {window_call(node, source, expressions) for node in windows}
    if len(made) > 1:
        message = "a query can have only one window"
        raise script.error(windows[1], message, "Write a query for each window.")
    beside = [node for node in items if node not in windows]
    # A constant splits no groups, and Spark reads a number in GROUP BY as a position in the select
    # list. But a grouping set without the constant makes it null.
    varying = [node for node in beside if has_sets(group) or not _is_constant(node)]
    keys = _keys(varying if windows or varying else beside, source, expressions)
    names = {each.sql: each.name for each in keys}
    sets = _sets(group, select, source, expressions) if has_sets(group) else None
    if sets is not None:
        keys = (*map(sets.nulled, keys), Expression(name=SET, sql=f"`{SET}`"))
    if not made:
        return Grouping(None, keys, frozenset(), names, sets)
    aliases = [
        each.alias.lower()
        for each in select.expressions
        if is_window_call(each.unalias(), expressions) and each.alias
    ]
    # A column that the query groups by takes precedence over the default name of the window.
    columns = {each.parts[0].name.lower() for each in beside if isinstance(each, exp.Column)}
    implicit = frozenset({window_name(windows[0])}) - columns
    return Grouping(made.pop(), keys, frozenset(aliases) or implicit, names, sets)


def _all(select: exp.Select, expressions: Expressions) -> list[exp.Expr]:
    """Return the items of GROUP BY ALL: all selected expressions without aggregates."""
    values = [each.unalias() for each in select.expressions]
    return [
        each
        for each in values
        if not each.find(exp.Window)
        and all(is_window_call(call, expressions) for call in calls(each, expressions))
    ]


def is_grouping_call(node: exp.Expr, expressions: Expressions) -> bool:
    """Return whether a node is a call of grouping() or grouping_id()."""
    return (
        isinstance(node, exp.Anonymous)
        and node.name.lower() in _GROUPING_CALLS
        and not expressions.functions.is_user_defined(node.name)
    )


def grouping_value(
    call: exp.Expr,
    sets: GroupingSets,
    select: exp.Select,
    source: Relation,
    expressions: Expressions,
) -> exp.Expr:
    """Return the value of grouping() or grouping_id() over the aggregate's output."""
    script, name, arguments = expressions.script, call.name.lower(), call.expressions
    if name == "grouping" and len(arguments) != 1:
        hint = "Use grouping_id(a, b) for several."
        raise script.error(call, f"grouping() takes one argument, not {len(arguments)}", hint)
    columns = list(sets.columns)
    if arguments:
        columns = [_spelled(each, select, source, expressions) for each in arguments]
    for node, column in zip(arguments, columns, strict=False):
        if column not in sets.columns:
            message = f"the argument of {name}() is not in GROUP BY"
            raise script.error(node, message, "Add it to a grouping set.")
    kind = "TINYINT" if name == "grouping" else "BIGINT"
    return exp.cast(sets.omitted_bits(columns), kind, dialect="spark")


def is_aggregated(select: exp.Select, expressions: Expressions) -> bool:
    """Return whether the query groups rows."""
    return bool(select.args.get("group")) or any(
        calls(each, expressions) for each in _results(select)
    )


def calls(node: exp.Expr, expressions: Expressions) -> list[exp.Expr]:
    """Return the calls in the expression that make its query an aggregated one."""
    # Calls in a subquery belong to the subquery.
    found = node.walk(prune=lambda each: isinstance(each, exp.Query))
    return [
        each
        for each in found
        if isinstance(each, exp.Anonymous)
        and (expressions.call_kind(each) is Call.AGGREGATE or is_window_call(each, expressions))
        and not _is_over(each)
    ]


def _sets(
    group: exp.Group, select: exp.Select, source: Relation, expressions: Expressions
) -> GroupingSets:
    def spelled(node: exp.Expr) -> str:
        return _spelled(node, select, source, expressions)

    columns = tuple(dict.fromkeys(map(spelled, written_items(group))))
    if len(columns) > MAX_COLUMNS:
        message = f"grouping sets can have at most {MAX_COLUMNS} columns, not {len(columns)}"
        raise expressions.script.error(group, message, "Group by fewer columns.")
    written = written_sets(group, expressions.script)
    sets = GroupingSets(columns, tuple(frozenset(map(spelled, each)) for each in written))
    if WINDOW in columns and not all(WINDOW in each for each in sets.sets):
        raise expressions.script.error(
            group,
            "the window must be in every grouping set: a group without it is never complete",
            "Put it before the sets, as in GROUP BY tumble(INTERVAL '1 hour'), ROLLUP (a, b).",
        )
    return sets


def _spelled(node: exp.Expr, select: exp.Select, source: Relation, expressions: Expressions) -> str:
    """Return an item of GROUP BY as Spark SQL, or the name of the window."""
    target = _target(node.unnest(), select, source, expressions)
    if is_window_call(target, expressions):
        return WINDOW
    return expressions.sql(target.unnest(), source)


def _results(select: exp.Select) -> list[exp.Expr]:
    having = select.args.get("having")
    return [*select.expressions, *([having] if having else [])]


def _is_constant(node: exp.Expr) -> bool:
    node = node.unnest()
    value = node.this if isinstance(node, exp.Neg) else node
    return isinstance(value, exp.Literal | exp.Boolean | exp.Null)


def _is_over(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return isinstance(parent, exp.Window)


def _target(
    node: exp.Expr, select: exp.Select, source: Relation, expressions: Expressions
) -> exp.Expr:
    """Return the expression that an item of GROUP BY refers to.

    A column of the input takes precedence over an alias, as in Spark, except that an alias of the
    window always means the window.
    """
    selected: list[exp.Expr] = select.expressions
    if isinstance(node, exp.Literal) and node.is_int:
        index = int(node.name)
        if not 1 <= index <= len(selected):
            message = (
                f"GROUP BY {index} is out of range for a select list of length {len(selected)}"
            )
            raise expressions.script.error(node, message)
        return selected[index - 1].unalias()
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        aliased = [each for each in selected if each.alias.lower() == node.name.lower()]
        made = [each for each in aliased if is_window_call(each.unalias(), expressions)]
        if made or (aliased and not source.find(node.name)):
            return (made or aliased)[0].unalias()
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
        # Named after the column, not after an alias, so that renaming the output does not change
        # the operator.
        name = bound.name if isinstance(bound, exp.Column) else f"key_{number}"
        if name.lower() in taken:
            name = f"key_{number}"
        taken.add(name.lower())
        keys[sql] = Expression(name=name, sql=sql, position=expressions.script.position(node))
    return tuple(keys.values())
