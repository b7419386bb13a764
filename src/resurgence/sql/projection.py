"""A select list: names for what it computes, unique in the operator's output."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from resurgence.graph.model import EVENT_TIME, Expression, Position
from resurgence.sql.dialect import to_spark
from resurgence.sql.relation import Attribute, Relation
from resurgence.udf import registered_name


@dataclass(frozen=True)
class Item:
    """One bound entry of a select list; without a name it gets one."""

    name: str | None
    bound: exp.Expr
    type: str | None
    position: Position


def named_items(items: list[Item]) -> list[tuple[Attribute, Expression]]:
    """Each item as the user sees it and as the operator computes it."""
    taken: set[str] = {EVENT_TIME}
    chosen: list[tuple[Attribute, Expression]] = []
    for number, item in enumerate(items, start=1):
        name = item.name or _default_name(item.bound, number)
        column, copies = name, 1
        while column.lower() in taken:
            copies += 1
            column = f"{name}_{copies}"
        taken.add(column.lower())
        expression = Expression(name=column, sql=to_spark(item.bound), position=item.position)
        chosen.append((Attribute(name=name, column=column, type=item.type), expression))
    return chosen


def carried_event_time(source: Relation) -> tuple[Expression, ...]:
    """Event time goes along with every row that has it, unseen."""
    return (Expression(name=EVENT_TIME, sql=f"`{EVENT_TIME}`"),) if source.has_event_time else ()


def _default_name(bound: exp.Expr, number: int) -> str:
    if not isinstance(bound, exp.Anonymous):
        return f"column_{number}"
    return bound.name.removeprefix(registered_name(""))
