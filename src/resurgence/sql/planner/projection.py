"""Select lists: the expressions of an operator and their names, unique in its output."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.graph.values import CHANGE, EVENT_TIME, Expression, Position
from resurgence.sql.catalog.relation import (
    Attribute,
    Relation,
    RowKind,
    WindowPart,
    column_sql,
    reference,
)
from resurgence.sql.planner.operators import Operators
from resurgence.sql.syntax.dialect import to_spark
from resurgence.udf import registered_name


@dataclass(frozen=True)
class Item:
    """One bound entry of a select list; `named_items` names it if it has no name."""

    name: str | None
    bound: exp.Expr
    type: str | None
    position: Position
    window: WindowPart | None = None
    is_event_time: bool = False
    is_processing_time: bool = False
    is_unnamed_window: bool = False


def named_items(items: list[Item]) -> list[tuple[Attribute, Expression]]:
    """Return each item as the user sees it and as the operator computes it."""
    taken: set[str] = {EVENT_TIME, CHANGE}
    chosen: list[tuple[Attribute, Expression]] = []
    for number, item in enumerate(items, start=1):
        name = item.name or _default_name(item.bound, number)
        column, copies = name, 1
        while column.lower() in taken:
            copies += 1
            column = f"{name}_{copies}"
        taken.add(column.lower())
        expression = Expression(name=column, sql=to_spark(item.bound), position=item.position)
        attribute = Attribute(
            name=name,
            column=column,
            type=item.type,
            window=item.window,
            is_event_time=item.is_event_time,
            is_processing_time=item.is_processing_time,
            is_unnamed_window=item.is_unnamed_window,
        )
        chosen.append((attribute, expression))
    return chosen


def star_items(source: Relation, position: Position) -> list[Item]:
    """Return all columns unchanged."""
    return [
        Item(
            each.name,
            reference(each),
            each.type,
            position,
            each.window,
            each.is_event_time,
            each.is_processing_time,
        )
        for each in source.attributes
    ]


def hidden_columns(source: Relation) -> tuple[Expression, ...]:
    """Return the hidden columns that every projection passes on: event time and the change flag."""
    hidden = []
    if source.has_event_time:
        hidden.append(Expression(name=EVENT_TIME, sql=f"`{EVENT_TIME}`"))
    if source.kind is RowKind.UPDATING:
        hidden.append(Expression(name=CHANGE, sql=f"`{CHANGE}`"))
    return tuple(hidden)


def filtered(source: Relation, where: Expression | None, operators: Operators) -> Relation:
    """Return the rows that satisfy a condition, unchanged."""
    if where is None:
        return source
    select = tuple(Expression(name=each.column, sql=column_sql(each)) for each in source.attributes)
    operator = operators.query(source.operator, (*select, *hidden_columns(source)), where)
    return replace(source, operator=operator, unread=())


def column_and_window(
    bound: exp.Expr, source: Relation
) -> tuple[Attribute | None, WindowPart | None]:
    """Return the column if a bound expression is a plain column reference, and the part of the
    row's window that the expression identifies.
    """
    sql = to_spark(bound.unnest())
    column = next((each for each in source.attributes if sql == column_sql(each)), None)
    return column, source.window_part(sql)


def _default_name(bound: exp.Expr, number: int) -> str:
    if not isinstance(bound, exp.Anonymous):
        return f"column_{number}"
    return bound.name.removeprefix(registered_name(""))
