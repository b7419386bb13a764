"""EXISTS and IN in WHERE: they become joins that keep rows of the left side which have, or have not, a
row on the right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.sql.clauses import unsupported
from resurgence.sql.expressions import Expressions
from resurgence.sql.functions import EXPLODES
from resurgence.sql.grouping import is_aggregated
from resurgence.sql.grouping_sets import has_sets
from resurgence.sql.joins import Joins, conjuncts
from resurgence.sql.relation import Relation

Compile = Callable[[exp.Expr], Relation]
Rows = Callable[[exp.Select], Relation]
_EXISTS_CLAUSES = frozenset(
    {"expressions", "distinct", "from_", "joins", "laterals", "where", "order"}
)
_INNER, _VALUE = "subquery", "__value"
"""What the result of a subquery is called in the condition of its join, and the column that it
gives to IN.
"""


@dataclass(frozen=True)
class Subqueries:
    """Takes the subqueries out of a query's WHERE."""

    expressions: Expressions
    joins: Joins
    compile: Compile
    rows: Rows
    """FROM and WHERE of a query, without its select list."""

    def applied(self, select: exp.Select, source: Relation) -> Relation:
        """The source without the rows that its subqueries leave out. What is left of WHERE stays."""
        where = select.args.get("where")
        if where is None or not where.find(exp.Query):
            return source
        rest = []
        for part in conjuncts(where.this):
            found = _subquery(part)
            if found is None:
                rest.append(part)
            else:
                self._refuse_nulls(select, *found)
                source = self._joined(source, *found)
        if rest:
            where.set("this", exp.and_(*rest, copy=False))
        else:
            select.set("where", None)
        return source

    def _joined(self, source: Relation, test: exp.Exists | exp.In, negated: bool) -> Relation:
        if isinstance(test, exp.In):
            right, condition = self._of_in(test)
        else:
            right, condition = self._of_exists(test)
        join = exp.Join(side="LEFT", kind="ANTI" if negated else "SEMI", on=condition)
        join.meta["start"] = self.expressions.script.offset(test)
        return self.joins.compile(source, right, join)

    def _refuse_nulls(self, select: exp.Select, test: exp.Exists | exp.In, negated: bool) -> None:
        """NOT IN is a join only where there are no nulls: one null on the right, and it is never
        true.
        """
        if not isinstance(test, exp.In) or not negated:
            return
        query = test.args["query"].unnest()
        values = query.expressions if isinstance(query, exp.Select) else []
        if not _has_value(select, test.this) or not all(
            _has_value(query, each.unalias()) for each in values or [exp.null()]
        ):
            hint = "add WHERE ... IS NOT NULL to both queries, or use NOT EXISTS (SELECT ...)"
            message = "NOT IN (SELECT ...) needs values that are not null on both sides"
            raise self._error(test, message, hint)

    def _of_in(self, test: exp.In) -> tuple[Relation, exp.Expr]:
        query = test.args["query"].unnest()
        right = self.compile(query)
        if len(right.attributes) != 1:
            message = f"IN takes a SELECT of one column, not of {len(right.attributes)}"
            raise self._error(test, message)
        value = replace(right.attributes[0], name=_VALUE, table=_INNER)
        column = exp.column(_VALUE, table=_INNER, quoted=True)
        return replace(right, attributes=(value,)), exp.EQ(this=test.this, expression=column)

    def _of_exists(self, test: exp.Exists) -> tuple[Relation, exp.Expr]:
        """The rows of the subquery, and the conditions in it that speak of the query around it."""
        inner = test.this.unnest().copy()
        if not isinstance(inner, exp.Select) or is_aggregated(inner, self.expressions):
            message = "EXISTS takes a SELECT without aggregates, GROUP BY and HAVING"
            raise self._error(test, message, "use IN (SELECT key ... GROUP BY key), or a join")
        for key, value in inner.args.items():
            if value and key not in _EXISTS_CLAUSES and not _is_some_limit(value):
                raise unsupported(inner, key, self.expressions.script, "in EXISTS")
        if any(each.unalias().name.lower() in EXPLODES for each in inner.expressions):
            message = "EXISTS takes rows as they are, and this makes others of them"
            raise self._error(test, message, "explode in a subquery of FROM")
        where = inner.args.get("where")
        parts = list(conjuncts(where.this)) if where else []
        rows = inner.copy()
        rows.set("where", None)
        # Nobody sees what it selects; what the conditions read must be there.
        rows.set("expressions", [each.copy() for each in parts])
        everything = self.rows(rows)
        own = [each for each in parts if self.expressions.binds(each, everything)]
        shared = [each for each in parts if each not in own]
        if not shared:
            message = "EXISTS must say which rows of the query around it it is about"
            raise self._error(test, message, "add WHERE inner.key = outer.key")
        if own:
            rows.set("where", exp.Where(this=exp.and_(*own)))
        return self.rows(rows), exp.and_(*(_qualified(each, everything) for each in shared))

    def _error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _is_some_limit(clause: object) -> bool:
    """Whether this is a LIMIT that leaves a row if there is one."""
    rows = clause.expression if isinstance(clause, exp.Limit) else None
    return isinstance(rows, exp.Literal) and rows.is_int and int(rows.name) > 0


def _qualified(part: exp.Expr, relation: Relation) -> exp.Expr:
    """A condition in which a bare name that the relation knows means its column: what a subquery
    has hides what the query around it has.
    """

    def step(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            found = relation.find(node.name)
            if len(found) == 1 and found[0].table:
                node.set("table", exp.to_identifier(found[0].table))
        return node

    return part.transform(step, copy=True)


def _has_value(select: exp.Select, value: exp.Expr) -> bool:
    """Whether a query says that its rows have this value. Grouping sets would make nulls anew."""
    where, group = select.args.get("where"), select.args.get("group")
    if where is None or (group is not None and has_sets(group)):
        return False
    has_value = exp.Not(this=exp.Is(this=value.unnest().copy(), expression=exp.null()))
    told = _unqualified(has_value, select)
    return any(_unqualified(part, select) == told for part in conjuncts(where.this))


def _unqualified(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """An expression without the name of the query's table, if it has one table alone."""
    if any(select.args.get(each) for each in ("joins", "laterals")) or not select.args.get("from_"):
        return node
    table = select.args["from_"].this.alias_or_name.lower()

    def step(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and len(each.parts) == 2 and each.table.lower() == table:
            return exp.Column(this=each.this.copy())
        return each

    return node.transform(step, copy=True)


def _subquery(part: exp.Expr) -> tuple[exp.Exists | exp.In, bool] | None:
    plain = part.unnest()
    negated = isinstance(plain, exp.Not)
    test = plain.this.unnest() if isinstance(plain, exp.Not) else plain
    if isinstance(test, exp.Exists) or (isinstance(test, exp.In) and test.args.get("query")):
        return test, negated
    return None
