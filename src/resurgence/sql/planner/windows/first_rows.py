"""Top-N and deduplication: `row_number()` in a select list, and a filter above it that bounds the
number.

When the select list is compiled, the filter is not known. So the numbered query is compiled without
a bound, and remembered here; a filter that bounds the number replaces it by one that knows how many
rows of each key can be in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from resurgence.graph.aggregate_call import SortOrder
from resurgence.graph.specs.updating_query import FirstRows, UpdatingInput
from resurgence.graph.values import Expression, Position
from resurgence.ids import OperatorId
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import Item
from resurgence.sql.syntax.dialect import to_spark

_NUMBER, _VALUE = "number_", "value_"


@dataclass(frozen=True)
class Numbering:
    """A query that numbers the rows of each key."""

    stored: UpdatingInput
    order: tuple[SortOrder, ...]
    results: tuple[Expression, ...]
    """Over the stored columns and the number."""
    position: Position

    def is_number(self, column: str) -> bool:
        """Return whether a column of the result is the number itself."""
        return any(each.name == column and each.sql == f"`{_NUMBER}`" for each in self.results)

    def limited(self, limit: int, operators: Operators) -> OperatorId:
        """Return the same query over the first rows of each key."""
        keys = ", ".join(f"`{each}`" for each in self.stored.keys)
        over = f"(PARTITION BY {keys} ORDER BY {', '.join(map(str, self.order))})"
        numbered = f"SELECT *, row_number() OVER {over} AS `{_NUMBER}` FROM {{input_0}}"
        results = ", ".join(f"{each.sql} AS `{each.name}`" for each in self.results)
        return operators.updating_query(
            (self.stored,),
            f"SELECT {results} FROM ({numbered}) WHERE `{_NUMBER}` <= {limit}",
            self.position,
            first_rows=FirstRows(
                limit=limit, order=self.order, number=_NUMBER, results=self.results
            ),
        )


def numbering(
    items: list[Item],
    names: list[str],
    keys: list[Expression],
    source: OperatorId,
    position: Position,
    *,
    is_updating: bool,
    is_user_defined: Callable[[str], bool],
) -> Numbering | None:
    """Return how a select list numbers the rows of each key; None if it does more than that. Its
    items are bound, and have `names`.
    """
    windows = [each for item in items for each in item.bound.find_all(exp.Window)]
    first = windows[0]
    order = first.args.get("order")
    is_numbered = to_spark(first.this).lower() == "row_number()" and not first.args.get("spec")
    if order is None or not is_numbered or len({to_spark(each) for each in windows}) > 1:
        return None
    stored: dict[str, Expression] = {}

    def value(node: exp.Expr) -> str:
        sql = to_spark(node)
        name = f"{_VALUE}{len(stored)}"
        return stored.setdefault(sql, Expression(name=name, sql=sql, position=position)).name

    def over_stored(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Window):
            return exp.column(_NUMBER, quoted=True)
        return exp.column(value(node), quoted=True) if isinstance(node, exp.Column) else node

    results = []
    for item, name in zip(items, names, strict=True):
        if item.bound.find(exp.Window) is None:
            sql = to_spark(item.bound)
            stored.setdefault(
                sql, Expression(name=f"{_VALUE}{len(stored)}", sql=sql, position=item.position)
            )
            results.append(Expression(name=name, sql=f"`{stored[sql].name}`"))
        elif item.bound.find(exp.Lambda) or any(
            is_user_defined(each.name) for each in item.bound.find_all(exp.Anonymous)
        ):
            return None
        else:
            computed = to_spark(item.bound.transform(over_stored, copy=True))
            results.append(Expression(name=name, sql=computed, position=item.position))
    orders = tuple(
        SortOrder(
            sql=f"`{value(each.this)}`",
            descending=bool(each.args.get("desc")),
            nulls_first=bool(each.args.get("nulls_first")),
        )
        for each in order.expressions
    )
    return Numbering(
        stored=UpdatingInput(
            operator=source,
            columns=(*stored.values(), *keys),
            keys=tuple(each.name for each in keys),
            is_updating=is_updating,
        ),
        order=orders,
        results=tuple(results),
        position=position,
    )


def bound_of(parts: Iterator[exp.Expr], is_number: Callable[[exp.Expr], bool]) -> int | None:
    """Return how large a number can be at most, by the operands of AND in a filter; None if they do
    not say.
    """
    bounds = []
    for part in parts:
        part = part.unnest()
        if isinstance(part, exp.Between):
            part = exp.LTE(this=part.this, expression=part.args["high"])
        if isinstance(part, exp.GT | exp.GTE):
            kind = exp.LT if isinstance(part, exp.GT) else exp.LTE
            part = kind(this=part.expression, expression=part.this)
        if not isinstance(part, exp.EQ | exp.LT | exp.LTE):
            continue
        number, limit = part.this.unnest(), part.expression.unnest()
        if isinstance(part, exp.EQ) and is_number(limit):
            number, limit = limit, number
        if is_number(number) and isinstance(limit, exp.Literal) and limit.is_int:
            bounds.append(int(limit.name) - isinstance(part, exp.LT))
    return min(bounds, default=None)
