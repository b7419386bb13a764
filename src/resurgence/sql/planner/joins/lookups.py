"""Lookup joins: each row of a stream is joined with an external table, as of the epoch.

The stream is on the left, and the join is an inner, left, semi or anti join: the external table
changes without notice, so its unmatched rows cannot be returned. The join has no state. Its input
must be append-only, and its output is of the same kind with the same event time. Changelogs are
refused: a retraction could match another version of the table than the insert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.specs.base import slug
from resurgence.graph.specs.lookup_join import LookupJoinKind, LookupSpec
from resurgence.graph.values import CHANGE, EVENT_TIME, Expression
from resurgence.ids import OperatorId
from resurgence.sql.catalog.relation import Attribute, Relation, RowKind, column_sql
from resurgence.sql.catalog.tables import Table, attributes
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.joins.joins import Joins, conjuncts
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import hidden_columns
from resurgence.sql.syntax.clauses import unsupported
from resurgence.sql.syntax.dialect import PlanningTime, to_spark
from resurgence.sql.syntax.parse import Script

_EXAMPLE = "as in FROM events e JOIN {table} t ON e.key = t.key."


@dataclass(frozen=True, kw_only=True)
class LookupRelation(Relation):
    """A lookup table. No operator produces its rows: it can only be joined."""

    spec: LookupSpec


def lookup_relation(table: Table) -> LookupRelation:
    """Return the relation of a declared lookup table."""
    columns = table.columns or ()
    return LookupRelation(
        operator=OperatorId(""),
        attributes=attributes(columns),
        has_event_time=False,
        spec=LookupSpec(
            name=table.name,
            connector=table.connector,
            options=table.options,
            columns=columns,
            ttl_micros=table.ttl_micros,
        ),
    )


def check_version(table: exp.Table, relation: Relation, script: Script) -> None:
    """Raise SqlError for a version of a table that cannot be read.

    `FOR SYSTEM_TIME AS OF o.at` is Flink's syntax of a lookup join: each row is joined with the
    table as the epoch reads it, whatever time of the row is named. A constant time can only mean an
    older version of the table.
    """
    version = table.args.get("version")
    if version is None:
        return
    is_as_of = version.name == "TIMESTAMP" and version.args.get("kind") == "AS OF"
    if not is_as_of or not isinstance(relation, LookupRelation):
        raise unsupported(table, "version", script)
    if not version.expression.find(exp.Column) and not _is_now(version.expression):
        raise script.error(
            version.expression,
            f"lookup table '{relation.spec.name}' cannot be read as of a constant time",
            "Use FOR SYSTEM_TIME AS OF PROCTIME(), or leave it out: the newest version is read.",
        )


@dataclass(frozen=True)
class LookupJoins:
    """Compiles the joins of a FROM clause whose right side is a lookup table."""

    expressions: Expressions
    operators: Operators

    def compile(self, left: Relation, right: LookupRelation, node: exp.Join) -> Relation:
        """Return the columns of both sides, with the kind and the event time of the left."""
        join = self._join(node, right)
        version = node.this.args.get("version") if node.this else None  # none: a subquery of WHERE
        if version is not None and not _is_now(version.expression):
            self.expressions.bound(version.expression, left)
        self._require_append_only(left, right, node)
        found = _disambiguated(right, left)
        both = replace(left, attributes=(*left.attributes, *found.attributes))
        joins = Joins(self.expressions, self.operators)
        condition = joins.condition(node, left, found, both)
        if not any(
            each for part in conjuncts(condition) for each in joins.equality(part, left, found)
        ):
            raise self._error(
                node,
                "a lookup join requires an equality between its sides",
                f"Add one, {_EXAMPLE.format(table=right.spec.name)}",
            )
        operator = self.operators.lookup_join(
            left.operator,
            right.spec,
            join,
            Expression(
                name="on",
                sql=to_spark(condition),
                position=self.expressions.script.position(node),
            ),
            self._found(found, right),
        )
        if join in ("left_semi", "left_anti"):
            return replace(left, operator=operator)
        joined = replace(both, operator=operator)
        return self._without_doubles(joined, found, node) if node.args.get("using") else joined

    def scalar(
        self,
        left: Relation,
        right: LookupRelation,
        value: exp.Expr,
        conditions: Sequence[exp.Expr],
        name: str,
        node: exp.Expr,
    ) -> Relation:
        """Return the left rows, each with the value of a scalar subquery over the table."""
        self._require_append_only(left, right, node)
        found = _disambiguated(right, left)
        both = replace(left, attributes=(*left.attributes, *found.attributes))
        position = self.expressions.script.position(node)
        operator = self.operators.lookup_join(
            left.operator,
            right.spec,
            "scalar",
            Expression(
                name="on",
                sql=self.expressions.sql(exp.and_(*conditions, exp.true()), both),
                position=position,
            ),
            self._found(found, right),
            Expression(name=name, sql=self.expressions.sql(value, both), position=position),
        )
        hidden = Attribute(name, name, is_hidden=True)
        return replace(left, operator=operator, attributes=(*left.attributes, hidden))

    def refused(self, relation: LookupRelation, node: exp.Expr) -> SqlError:
        """Return the error for a lookup table that is read as a stream."""
        name = relation.spec.name
        return self._error(
            node,
            f"lookup table '{name}' can only be joined",
            f"Put the stream first, {_EXAMPLE.format(table=name)}",
        )

    def _require_append_only(self, left: Relation, right: LookupRelation, node: exp.Expr) -> None:
        if left.kind is RowKind.UPDATING:
            name = right.spec.name
            raise self._error(
                node,
                f"lookup join with '{name}' requires an append-only input, but this input is a"
                " changelog",
                f"Join '{name}' before rows are aggregated or joined, or do that in a window.",
            )

    def _found(self, found: Relation, right: LookupRelation) -> tuple[Expression, ...]:
        """Return the table's columns under their names in the join."""
        return tuple(
            Expression(name=made.column, sql=column_sql(each))
            for made, each in zip(found.attributes, right.attributes, strict=True)
        )

    def _join(self, node: exp.Join, right: LookupRelation) -> LookupJoinKind:
        words = [(node.method or ""), (node.side or ""), (node.kind or "")]
        text = " ".join(each.upper() for each in words if each)
        if text in ("", "INNER"):
            return "inner"
        if text in ("LEFT", "LEFT OUTER"):
            return "left"
        if text in ("LEFT SEMI", "SEMI"):
            return "left_semi"
        if text in ("LEFT ANTI", "ANTI"):
            return "left_anti"
        raise self._error(
            node,
            f"{text} JOIN is not supported with the lookup table '{right.spec.name}'",
            "Use JOIN or LEFT JOIN, with the stream on the left.",
        )

    def _without_doubles(self, joined: Relation, found: Relation, node: exp.Join) -> Relation:
        """Remove the columns of the table that USING equates with those of the stream."""
        using = [each.name.lower() for each in node.args["using"]]
        hidden = [each for each in found.attributes if each.name.lower() in using]
        rest = [each for each in joined.attributes if each not in hidden]
        # As in any join, the columns of USING come first.
        order = {name: place for place, name in enumerate(using)}
        shown = tuple(sorted(rest, key=lambda each: order.get(each.name.lower(), len(order))))
        select = [Expression(name=each.column, sql=column_sql(each)) for each in shown]
        operator = self.operators.query(joined.operator, (*select, *hidden_columns(joined)))
        return replace(joined, operator=operator, attributes=shown)

    def _error(self, node: exp.Expr, message: str, hint: str) -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _is_now(node: exp.Expr) -> bool:
    while isinstance(node, exp.Paren) or (
        isinstance(node, exp.Cast) and node.to.this != exp.DType.DATE
    ):
        node = node.this
    return isinstance(node, PlanningTime)


def _disambiguated(right: LookupRelation, left: Relation) -> Relation:
    """Return the table's columns under names that no column of the stream has."""
    taken = {EVENT_TIME, CHANGE, *(each.column.lower() for each in left.attributes)}
    renamed: list[Attribute] = []
    for each in right.attributes:
        name = f"{slug(right.spec.name)}_{each.name}"
        column, copies = name, 1
        while column.lower() in taken:
            copies += 1
            column = f"{name}_{copies}"
        taken.add(column.lower())
        renamed.append(replace(each, column=column))
    return Relation(right.operator, tuple(renamed), has_event_time=False)
