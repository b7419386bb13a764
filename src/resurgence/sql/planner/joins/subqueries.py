"""EXISTS and IN in WHERE, compiled into semi joins and anti joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.sql.catalog.relation import Relation
from resurgence.sql.functions.registry import EXPLODES
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.grouping.grouping import is_aggregated
from resurgence.sql.planner.grouping.grouping_sets import has_sets
from resurgence.sql.planner.joins.correlation import (
    Correlated,
    Correlation,
    Rows,
    columns_of,
    with_unique_names,
)
from resurgence.sql.planner.joins.joins import Joins, conjuncts
from resurgence.sql.planner.joins.lookups import LookupJoins, LookupRelation
from resurgence.sql.syntax.clauses import unsupported

Compile = Callable[[exp.Expr], Relation]
_EXISTS_CLAUSES = frozenset(
    {"expressions", "distinct", "from_", "joins", "laterals", "where", "order"}
)


@dataclass(frozen=True)
class Subqueries:
    """Compiles the subqueries of a query's WHERE."""

    expressions: Expressions
    joins: Joins
    compile: Compile
    rows: Rows

    def applied(self, select: exp.Select, source: Relation) -> Relation:
        """Return the source filtered by the subqueries of WHERE, and remove them from WHERE."""
        where = select.args.get("where")
        if where is None or not where.find(exp.Query):
            return source
        rest = []
        for part in conjuncts(where.this):
            found = _subquery(part)
            if found is None:
                rest.append(part)
            else:
                source = self._joined(select, source, *found)
        if rest:
            where.set("this", exp.and_(*rest, copy=False))
        else:
            select.set("where", None)
        return source

    def _joined(
        self, select: exp.Select, source: Relation, test: exp.Exists | exp.In, negated: bool
    ) -> Relation:
        if isinstance(test, exp.In):
            right, condition = self._of_in(select, test, negated)
        else:
            right, condition = self._of_exists(test)
        join = exp.Join(side="LEFT", kind="ANTI" if negated else "SEMI", on=condition)
        join.meta["start"] = self.expressions.script.offset(test)
        if isinstance(right, LookupRelation):
            return LookupJoins(self.expressions, self.joins.operators).compile(source, right, join)
        return self.joins.compile(source, right, join)

    def _of_in(self, select: exp.Select, test: exp.In, negated: bool) -> tuple[Relation, exp.Expr]:
        """Return the rows of the subquery, and the condition that an outer row is among them."""
        query, tested = test.args["query"].unnest(), test.this.unnest()
        outer = tested.expressions if isinstance(tested, exp.Tuple) else [tested]
        parts = self._correlated(query, test)
        if parts is None:
            right = with_unique_names(self.compile(query))
            values = columns_of(right)
        else:
            right, values = parts.rows, list(parts.values)
        if len(outer) != len(values):
            message = f"IN compares {len(outer)} columns with {len(values)}"
            hint = "Select as many columns in the subquery as there are before IN."
            raise self._error(test, message, hint)
        equal = [
            exp.EQ(this=one, expression=other) for one, other in zip(outer, values, strict=True)
        ]
        shared = parts.shared if parts else ()
        if not negated or _excludes_nulls(select, outer, query):
            return right, exp.and_(*equal, *shared)
        if parts is None or not parts.has_keys:
            hint = "Add WHERE ... IS NOT NULL to both queries, or use NOT EXISTS (SELECT ...)."
            message = "NOT IN (SELECT ...) requires values that are not null on both sides"
            raise self._error(test, message, hint)
        # NOT IN is true only if every comparison is false: a null comparison counts as a match.
        matches = exp.Anonymous(this="coalesce", expressions=[exp.and_(*equal), exp.true()])
        return right, exp.and_(matches, *shared)

    def _correlated(self, query: exp.Expr, test: exp.In) -> Correlated | None:
        if not isinstance(query, exp.Select) or not query.args.get("from_"):
            return None
        correlation = Correlation(self.expressions, self.rows)
        if not is_aggregated(query, self.expressions):
            return correlation.split(query, "in a correlated subquery")
        if correlation.has_outer_conditions(query):
            message = "a correlated IN requires a SELECT without aggregates, GROUP BY and HAVING"
            hint = "Group by the key in a subquery of FROM and join that."
            raise self._error(test, message, hint)
        return None

    def _of_exists(self, test: exp.Exists) -> tuple[Relation, exp.Expr]:
        """Return the rows of the subquery, and its conditions that refer to the outer query."""
        inner = test.this.unnest().copy()
        if not isinstance(inner, exp.Select) or is_aggregated(inner, self.expressions):
            message = "EXISTS requires a SELECT without aggregates, GROUP BY and HAVING"
            raise self._error(test, message, "Use IN (SELECT key ... GROUP BY key), or a join.")
        for key, value in inner.args.items():
            if value and key not in _EXISTS_CLAUSES and not _is_some_limit(value):
                raise unsupported(inner, key, self.expressions.script, "in EXISTS")
        if any(each.unalias().name.lower() in EXPLODES for each in inner.expressions):
            message = "EXISTS requires a SELECT that does not explode arrays"
            raise self._error(test, message, "Explode the array in a subquery of FROM.")
        found = Correlation(self.expressions, self.rows).of_lookup(inner)
        if found is not None:
            return found.rows, exp.and_(*found.shared)
        where = inner.args.get("where")
        parts = list(conjuncts(where.this)) if where else []
        rows = inner.copy()
        rows.set("where", None)
        # Its output is not used, but the columns that the conditions read must be in it.
        rows.set("expressions", [each.copy() for each in parts])
        everything = self.rows(rows)
        local = [each for each in parts if self.expressions.binds(each, everything)]
        shared = [each for each in parts if each not in local]
        if not shared:
            message = "EXISTS requires a condition on a column of the outer query"
            raise self._error(test, message, "Add WHERE inner.key = outer.key.")
        if local:
            rows.set("where", exp.Where(this=exp.and_(*local)))
        return self.rows(rows), exp.and_(*(_qualified(each, everything) for each in shared))

    def _error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _is_some_limit(clause: object) -> bool:
    """Return whether a clause is a LIMIT greater than zero, which does not change EXISTS."""
    rows = clause.expression if isinstance(clause, exp.Limit) else None
    return isinstance(rows, exp.Literal) and rows.is_int and int(rows.name) > 0


def _qualified(part: exp.Expr, relation: Relation) -> exp.Expr:
    """Qualify the bare names of a condition that are columns of the relation: the columns of a
    subquery hide those of the outer query.
    """

    def step(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            found = relation.find(node.name)
            if len(found) == 1 and found[0].table:
                node.set("table", exp.to_identifier(found[0].table))
        return node

    return part.transform(step, copy=True)


def _excludes_nulls(select: exp.Select, outer: Sequence[exp.Expr], query: exp.Expr) -> bool:
    """Return whether both sides of an IN exclude nulls by IS NOT NULL."""
    if not isinstance(query, exp.Select):
        return False
    inner = [each.unalias() for each in query.expressions]
    return all(_has_value(select, each) for each in outer) and all(
        _has_value(query, each) for each in inner
    )


def _has_value(select: exp.Select, value: exp.Expr) -> bool:
    """Return whether the WHERE of a query excludes nulls of this value. Grouping sets would add
    nulls again.
    """
    where, group = select.args.get("where"), select.args.get("group")
    if where is None or (group is not None and has_sets(group)):
        return False
    has_value = exp.Not(this=exp.Is(this=value.unnest().copy(), expression=exp.null()))
    expected = _unqualified(has_value, select)
    return any(_unqualified(part, select) == expected for part in conjuncts(where.this))


def _unqualified(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return an expression without the table qualifier, if the query reads a single table."""
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
