"""Lookup joins: each row of a stream meets the rows of a table at rest, as the table is then.

The stream is on the left, and the join is an inner or a left one: a table that changes behind our
back cannot say which of its rows were met by none. Nothing is kept, so rows that stay go in, and
rows of the same kind, with the same event time, come out. A row that is taken back might meet
another table than when it came; such rows are refused.
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
from resurgence.sql.planner.projection import carried
from resurgence.sql.syntax.clauses import unsupported
from resurgence.sql.syntax.dialect import to_spark
from resurgence.sql.syntax.parse import Script

_EXAMPLE = "as in FROM events e JOIN {table} t ON e.key = t.key"


@dataclass(frozen=True, kw_only=True)
class LookupRelation(Relation):
    """A lookup table. No operator gives its rows: it can be joined, and nothing else."""

    spec: LookupSpec


def looked_up(table: Table) -> LookupRelation:
    """A declared lookup table as a FROM clause sees it."""
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
    """Raises SqlError for a version of a table that cannot be read.

    `FOR SYSTEM_TIME AS OF o.at` is the way in which Flink writes a lookup join: each row meets the
    table as it is when the epoch reads it, whatever time is named.
    """
    version = table.args.get("version")
    if version is None:
        return
    is_as_of = version.name == "TIMESTAMP" and version.args.get("kind") == "AS OF"
    if not is_as_of or not isinstance(relation, LookupRelation):
        raise unsupported(table, "version", script)


@dataclass(frozen=True)
class LookupJoins:
    """Compiles the joins of a FROM clause whose right side is a lookup table."""

    expressions: Expressions
    operators: Operators

    def compile(self, left: Relation, right: LookupRelation, node: exp.Join) -> Relation:
        """The relation of all columns of both, with the kind and the event time of the left."""
        join = self._join(node, right)
        version = node.this.args.get("version") if node.this else None  # none: a subquery of WHERE
        if version is not None and not _is_processing_time(version.expression):
            self.expressions.bound(version.expression, left)
        self._refuse_changes(left, right, node)
        found = _apart(right, left)
        both = replace(left, attributes=(*left.attributes, *found.attributes))
        joins = Joins(self.expressions, self.operators)
        condition = joins.condition(node, left, found, both)
        if not any(
            each for part in conjuncts(condition) for each in joins.equality(part, left, found)
        ):
            raise self._error(
                node,
                "a join with a lookup table needs columns that must be equal",
                _EXAMPLE.format(table=right.spec.name),
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
        """The rows of the left, each with the one value that a subquery over the table gives for it."""
        self._refuse_changes(left, right, node)
        found = _apart(right, left)
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
        """For a lookup table that stands where rows come from."""
        name = relation.spec.name
        return self._error(
            node,
            f"table '{name}' is looked up: no rows come from it by themselves",
            f"put the stream first, {_EXAMPLE.format(table=name)}",
        )

    def _refuse_changes(self, left: Relation, right: LookupRelation, node: exp.Expr) -> None:
        if left.kind is RowKind.UPDATING:
            raise self._error(
                node,
                "rows that may be taken back cannot be looked up: the table may have changed when"
                " a row is taken back",
                f"join '{right.spec.name}' before rows are aggregated or joined, or do that in a"
                " window",
            )

    def _found(self, found: Relation, right: LookupRelation) -> tuple[Expression, ...]:
        """The table's columns under the names that they have in a join."""
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
            f"{text} JOIN is not supported with the lookup table '{right.spec.name}': rows come"
            " from the stream alone",
            "use JOIN or LEFT JOIN, with the stream on the left",
        )

    def _without_doubles(self, joined: Relation, found: Relation, node: exp.Join) -> Relation:
        """With USING, the columns of the table that equal those of the stream are not shown."""
        using = [each.name.lower() for each in node.args["using"]]
        hidden = [each for each in found.attributes if each.name.lower() in using]
        rest = [each for each in joined.attributes if each not in hidden]
        # As everywhere, the columns of USING come first.
        order = {name: place for place, name in enumerate(using)}
        shown = tuple(sorted(rest, key=lambda each: order.get(each.name.lower(), len(order))))
        select = [Expression(name=each.column, sql=column_sql(each)) for each in shown]
        operator = self.operators.query(joined.operator, (*select, *carried(joined)))
        return replace(joined, operator=operator, attributes=shown)

    def _error(self, node: exp.Expr, message: str, hint: str) -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _is_processing_time(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "proctime"


def _apart(right: LookupRelation, left: Relation) -> Relation:
    """The table's columns under names that no column of the stream has."""
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
