"""Scalar subqueries in the select list and in WHERE: each becomes a hidden column of the input.

A subquery over rows of closed windows is computed when all rows of the window are available, so it
must be about the window of the outer row. One over a lookup table reads the table as of the epoch.
Spark computes both as scalar subqueries: an empty one is null, an aggregate over no rows is as in a
batch query, and one with several rows fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.values import EVENT_TIME
from resurgence.sql.catalog.relation import Attribute, Relation, RowKind, column_sql
from resurgence.sql.functions.aggregates import Trait
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.grouping.grouping import calls, is_aggregated
from resurgence.sql.planner.joins.correlation import Correlated, Correlation, Rows
from resurgence.sql.planner.joins.joins import (
    Joins,
    conjuncts,
    disambiguated,
    is_same_window,
    renamed,
)
from resurgence.sql.planner.joins.lookups import LookupJoins, LookupRelation
from resurgence.sql.planner.operators import Operators
from resurgence.sql.syntax.clauses import refuse_unread
from resurgence.sql.syntax.dialect import PlanningTime, to_spark

_READ = frozenset({"expressions", "distinct", "from_", "joins", "laterals", "where"})
_VALUE = "__scalar_"
_UNSUPPORTED = "a scalar subquery must read rows of the same window, or a lookup table"


@dataclass(frozen=True)
class ScalarSubqueries:
    """Compiles the scalar subqueries of a query."""

    expressions: Expressions
    operators: Operators
    rows: Rows

    def applied(self, select: exp.Select, source: Relation) -> tuple[exp.Select, Relation]:
        """Return the query without its scalar subqueries, and its input with their values."""
        if not _found(select):
            return select, source
        select = select.copy()
        is_grouped = is_aggregated(select, self.expressions)
        for number, node in enumerate(_found(select)):
            if is_grouped and node.find_ancestor(exp.Where, exp.Select) is select:
                message = "a scalar subquery is not allowed in the select list of a grouped query"
                hint = (
                    "Put the grouped query in a subquery:"
                    " SELECT ..., (SELECT ...) FROM (SELECT ... GROUP BY ...)."
                )
                raise self._error(node, message, hint)
            name = f"{_VALUE}{number}"
            source = self._with_value(source, node, name)
            column = exp.Column(this=exp.to_identifier(name, quoted=True))
            column.meta["start"] = self.expressions.script.offset(node)
            # In parentheses it is an expression, which has no default name.
            node.replace(exp.Paren(this=column))
        return select, source

    def _with_value(self, source: Relation, node: exp.Subquery, name: str) -> Relation:
        parts = self._parts(node)
        if isinstance(parts.rows, LookupRelation):
            lookups = LookupJoins(self.expressions, self.operators)
            return lookups.scalar(source, parts.rows, self._value(parts), parts.shared, name, node)
        if source.kind is not RowKind.CLOSED or parts.rows.kind is not RowKind.CLOSED:
            hint = "Use a join, or aggregate both sides in a window."
            raise self._error(node, _UNSUPPORTED, hint)
        left, right = disambiguated(source, "l"), disambiguated(parts.rows, "r")
        both = replace(left, attributes=(*left.attributes, *right.attributes))
        condition = self.expressions.bound(exp.and_(*parts.shared, exp.true()), both)
        joins = Joins(self.expressions, self.operators)
        if not any(
            is_same_window(each, left, right)
            for part in conjuncts(condition)
            for each in joins.equality(part, left, right)
        ):
            raise self._error(node, _UNSUPPORTED, "Add WHERE inner.window = outer.window.")
        value = self.expressions.sql(self._value(parts), both)
        columns = ", ".join(column_sql(each) for each in left.attributes)
        sql = (
            f"SELECT {columns}, (SELECT {value} FROM (SELECT {renamed(right, 'r')} FROM {{input_1}})"
            f" WHERE {to_spark(condition)}) AS `{name}`, `l_time` AS `{EVENT_TIME}`"
            f" FROM (SELECT {renamed(left, 'l')} FROM {{input_0}})"
        )
        operator = self.operators.closed_query(
            (left.operator, right.operator), sql, self.expressions.script.position(node)
        )
        attributes = (*left.attributes, Attribute(name, name, is_hidden=True))
        return replace(left, operator=operator, attributes=attributes)

    def _parts(self, node: exp.Subquery) -> Correlated:
        query = node.unnest()
        if not isinstance(query, exp.Select) or not query.args.get("from_"):
            message = "a scalar subquery requires a SELECT with FROM"
            raise self._error(node, message, "Compute constants without SELECT.")
        refuse_unread(query, _READ, self.expressions.script, "in a scalar subquery")
        if len(query.expressions) != 1 or query.is_star:
            message = "a scalar subquery must select exactly one column"
            raise self._error(node, message, "Name one column.")
        parts = Correlation(self.expressions, self.rows).parts(query)
        for part in (*parts.values, *parts.shared):
            if clock := part.find(PlanningTime):
                message = "the planning time, as in now(), is not supported in a scalar subquery"
                raise self._error(clock, message, "Compute it as a column in a subquery of FROM.")
        return parts

    def _value(self, parts: Correlated) -> exp.Expr:
        """Return the selected expression, with its aggregates marked as allowed."""
        (value,) = parts.values
        for call in calls(value, self.expressions):
            known = self.expressions.functions.aggregate(call.name)
            if not known.has(Trait.ORDER_INDEPENDENT):
                message = f"{call.name.lower()}() is not supported in a scalar subquery"
                raise self._error(call, message, "Compute it in a subquery of FROM and join that.")
        return self.expressions.with_aggregates(value)

    def _error(self, node: exp.Expr, message: str, hint: str) -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _found(select: exp.Select) -> list[exp.Subquery]:
    """Return the scalar subqueries of a query, without nested ones."""
    where = select.args.get("where")
    return [
        each
        for place in (*select.expressions, *filter(None, [where]))
        for each in place.walk(prune=lambda node: isinstance(node, exp.Query))
        if isinstance(each, exp.Subquery) and not isinstance(each.parent, exp.In)
    ]
