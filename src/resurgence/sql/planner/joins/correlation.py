"""Name resolution of correlated subqueries.

The columns of a subquery's FROM hide those of the outer query. So the columns of the subquery get
unique names, and references to them in its expressions are replaced; the remaining references are
to the outer query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.sql.catalog.relation import Relation
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.joins.joins import conjuncts
from resurgence.sql.planner.joins.lookups import LookupRelation
from resurgence.sql.syntax.clauses import refuse_unread
from resurgence.sql.syntax.parse import Script

Rows = Callable[[exp.Select], Relation]
"""Compiles FROM and WHERE of a query, without its select list. Ignores WHERE of a lookup table."""

_READ = frozenset({"expressions", "distinct", "from_", "joins", "laterals", "where"})
_PREFIX = "__inner_"


@dataclass(frozen=True)
class Correlated:
    """The parts of a subquery: its rows, its select list and the correlated conditions."""

    rows: Relation
    """With names that no column of the outer query has."""
    values: tuple[exp.Expr, ...]
    """Its select list."""
    shared: tuple[exp.Expr, ...]
    """The conditions that refer to the outer query; for a lookup table, all conditions."""

    @property
    def has_keys(self) -> bool:
        """Whether a condition is an equality with the outer query."""
        return any(isinstance(each.unnest(), exp.EQ | exp.NullSafeEQ) for each in self.shared)


@dataclass(frozen=True)
class Correlation:
    """Splits subqueries into their parts."""

    expressions: Expressions
    rows: Rows

    def split(self, select: exp.Select, place: str) -> Correlated | None:
        """Return the parts of a subquery, or None if it is not correlated. `place` names the kind
        of subquery in messages.
        """
        inner, values, parts = _split(select)
        relation = self.rows(inner)
        if not isinstance(relation, LookupRelation) and all(
            self._is_local(each, relation) for each in (*parts, *values)
        ):
            return None
        refuse_unread(select, _READ, self.expressions.script, place)
        return self.parts(select)

    def parts(self, select: exp.Select) -> Correlated:
        """Return the parts of a subquery, correlated or not."""
        inner, values, parts = _split(select)
        relation = self.rows(inner)
        local: list[exp.Expr] = []
        if not isinstance(relation, LookupRelation):
            local = [each for each in parts if self._is_local(each, relation)]
        if local:
            inner.set("where", exp.Where(this=exp.and_(*local)))
            relation = self.rows(inner)
        return self._parts(relation, values, [each for each in parts if each not in local])

    def has_outer_conditions(self, select: exp.Select) -> bool:
        """Return whether the WHERE of a subquery refers to the outer query."""
        inner, _, parts = _split(select)
        relation = self.rows(inner)
        return not all(self._is_local(each, relation) for each in parts)

    def of_lookup(self, select: exp.Select) -> Correlated | None:
        """Return the parts of a subquery over a lookup table, or None for any other subquery."""
        inner, values, parts = _split(select)
        relation = self.rows(inner)
        if not isinstance(relation, LookupRelation):
            return None
        return self._parts(relation, values, parts)

    def _parts(
        self, relation: Relation, values: list[exp.Expr], shared: list[exp.Expr]
    ) -> Correlated:
        script = self.expressions.script
        return Correlated(
            with_unique_names(relation),
            tuple(_renamed(each, relation, script) for each in values),
            tuple(_renamed(each, relation, script) for each in shared),
        )

    def _is_local(self, part: exp.Expr, relation: Relation) -> bool:
        """Return whether all columns in a part are those of the subquery. A nested query is checked
        when it is compiled.
        """
        return part.find(exp.Query) is not None or all(
            _binds(each, relation, self.expressions.script) for each in part.find_all(exp.Column)
        )


def _split(select: exp.Select) -> tuple[exp.Select, list[exp.Expr], list[exp.Expr]]:
    """Return a subquery without its WHERE, its select list, and the conjuncts of its WHERE."""
    where, values = select.args.get("where"), [each.unalias() for each in select.expressions]
    parts = list(conjuncts(where.this)) if where else []
    inner = select.copy()
    inner.set("where", None)
    # Its output is not used, but the columns that conditions and values read must be in it.
    inner.set("expressions", [each.copy() for each in (*values, *parts)])
    return inner, values, parts


def with_unique_names(relation: Relation) -> Relation:
    """Return the relation with unique names for its columns."""
    attributes = tuple(
        replace(each, name=f"{_PREFIX}{number}", table=None)
        for number, each in enumerate(relation.attributes)
    )
    return replace(relation, attributes=attributes)


def columns_of(relation: Relation) -> list[exp.Expr]:
    """Return references to the columns of a relation with unique names."""
    return [
        exp.Column(this=exp.to_identifier(each.name, quoted=True)) for each in relation.attributes
    ]


def _renamed(node: exp.Expr, relation: Relation, script: Script) -> exp.Expr:
    """Return a copy that refers to a relation's columns by the names of `with_unique_names`."""

    def step(each: exp.Expr) -> exp.Expr:
        if not isinstance(each, exp.Column) or not _binds(each, relation, script):
            return each
        attribute, path = relation.resolve(each, script)
        number = relation.attributes.index(attribute)
        names = [exp.to_identifier(name, quoted=True) for name in (f"{_PREFIX}{number}", *path)]
        column = exp.Column(**dict(zip(_PLACES[: len(names)], reversed(names), strict=True)))
        column.meta["start"] = script.offset(each)
        return column

    return node.transform(step, copy=True)


_PLACES = ("this", "table", "db", "catalog")


def _binds(column: exp.Column, relation: Relation, script: Script) -> bool:
    try:
        relation.resolve(column, script)
    except SqlError:
        return False
    return True
