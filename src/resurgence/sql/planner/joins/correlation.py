"""Subqueries that refer to columns of the query around them: which names are whose.

What the FROM of a subquery offers hides what the query around it offers. So the columns of the
subquery get names that nothing else has, and the names in its expressions that mean them are
replaced; what is left refers to the query around it.
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
"""FROM and WHERE of a query, without its select list. Of a lookup table, it ignores WHERE."""

_READ = frozenset({"expressions", "distinct", "from_", "joins", "laterals", "where"})
_OWN = "__inner_"


@dataclass(frozen=True)
class Correlated:
    """A subquery taken apart: its rows, and what it says of them and of the query around it."""

    rows: Relation
    """With names that no column of the query around it has."""
    values: tuple[exp.Expr, ...]
    """Its select list."""
    shared: tuple[exp.Expr, ...]
    """The conditions that refer to the query around it; of a lookup table, all conditions."""

    @property
    def has_keys(self) -> bool:
        """Whether something must be equal to something of the query around it."""
        return any(isinstance(each.unnest(), exp.EQ | exp.NullSafeEQ) for each in self.shared)


@dataclass(frozen=True)
class Correlation:
    """Takes subqueries apart."""

    expressions: Expressions
    rows: Rows

    def split(self, select: exp.Select, place: str) -> Correlated | None:
        """The parts of a subquery; None if it refers to nothing of the query around it. `place`
        says in messages where it stands.
        """
        inner, values, parts = _opened(select)
        relation = self.rows(inner)
        if not isinstance(relation, LookupRelation) and all(
            self._is_own(each, relation) for each in (*parts, *values)
        ):
            return None
        refuse_unread(select, _READ, self.expressions.script, place)
        return self.parts(select)

    def parts(self, select: exp.Select) -> Correlated:
        """The parts of a subquery, whether or not it refers to the query around it."""
        inner, values, parts = _opened(select)
        relation = self.rows(inner)
        own: list[exp.Expr] = []
        if not isinstance(relation, LookupRelation):
            own = [each for each in parts if self._is_own(each, relation)]
        if own:
            inner.set("where", exp.Where(this=exp.and_(*own)))
            relation = self.rows(inner)
        return self._parts(relation, values, [each for each in parts if each not in own])

    def has_outer_conditions(self, select: exp.Select) -> bool:
        """Whether the WHERE of a subquery refers to the query around it."""
        inner, _, parts = _opened(select)
        relation = self.rows(inner)
        return not all(self._is_own(each, relation) for each in parts)

    def of_lookup(self, select: exp.Select) -> Correlated | None:
        """The parts of a subquery over a lookup table; None if it is over something else."""
        inner, values, parts = _opened(select)
        relation = self.rows(inner)
        if not isinstance(relation, LookupRelation):
            return None
        return self._parts(relation, values, parts)

    def _parts(
        self, relation: Relation, values: list[exp.Expr], shared: list[exp.Expr]
    ) -> Correlated:
        script = self.expressions.script
        return Correlated(
            with_own_names(relation),
            tuple(_own(each, relation, script) for each in values),
            tuple(_own(each, relation, script) for each in shared),
        )

    def _is_own(self, part: exp.Expr, relation: Relation) -> bool:
        """Whether all columns in a part are those of the subquery; a query in it speaks for itself."""
        return part.find(exp.Query) is not None or all(
            _binds(each, relation, self.expressions.script) for each in part.find_all(exp.Column)
        )


def _opened(select: exp.Select) -> tuple[exp.Select, list[exp.Expr], list[exp.Expr]]:
    """A subquery without its WHERE, its select list, and the parts of its WHERE."""
    where, values = select.args.get("where"), [each.unalias() for each in select.expressions]
    parts = list(conjuncts(where.this)) if where else []
    inner = select.copy()
    inner.set("where", None)
    # Nobody sees what it selects; what conditions and values read must be there.
    inner.set("expressions", [each.copy() for each in (*values, *parts)])
    return inner, values, parts


def with_own_names(relation: Relation) -> Relation:
    """The same with names for its columns that nothing else has."""
    attributes = tuple(
        replace(each, name=f"{_OWN}{number}", table=None)
        for number, each in enumerate(relation.attributes)
    )
    return replace(relation, attributes=attributes)


def columns_of(relation: Relation) -> list[exp.Expr]:
    """The columns of a relation whose names differ."""
    return [
        exp.Column(this=exp.to_identifier(each.name, quoted=True)) for each in relation.attributes
    ]


def _own(node: exp.Expr, relation: Relation, script: Script) -> exp.Expr:
    """A copy in which names of a relation's columns are those of `with_own_names`."""

    def step(each: exp.Expr) -> exp.Expr:
        if not isinstance(each, exp.Column) or not _binds(each, relation, script):
            return each
        attribute, path = relation.resolve(each, script)
        number = relation.attributes.index(attribute)
        names = [exp.to_identifier(name, quoted=True) for name in (f"{_OWN}{number}", *path)]
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
