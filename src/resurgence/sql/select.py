"""SELECT to operators: where its rows come from, which it keeps, what it makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.model import Expression
from resurgence.sql.aggregate import Aggregation
from resurgence.sql.expressions import Expressions
from resurgence.sql.grouping import is_aggregated
from resurgence.sql.operators import Operators
from resurgence.sql.projection import Item, carried_event_time, named_items
from resurgence.sql.relation import Attribute, Relation, column_sql, reference

Lookup = Callable[[exp.Table], Relation]

_READ_CLAUSES = frozenset({"with_", "expressions", "from_", "where", "group", "having"})
_REFUSED_CLAUSES: Mapping[str, tuple[str, str]] = {
    "distinct": (
        "SELECT DISTINCT is not supported yet",
        "group by the columns in a tumble() window",
    ),
    "order": (
        "ORDER BY is not supported: a stream has no last row to sort up to",
        "sort where the output is read",
    ),
    "limit": ("LIMIT is not supported yet", "filter with WHERE"),
    "offset": ("OFFSET is not supported", "filter with WHERE"),
    "joins": ("joins are not supported yet", "read one table in each query"),
    "laterals": ("LATERAL is not supported yet", "use array functions such as transform()"),
    "hint": ("hints are not supported", "leave the hint out"),
    "qualify": ("QUALIFY is not supported yet", "aggregate in a tumble() window and use HAVING"),
}


@dataclass(frozen=True)
class Selects:
    """Compiles queries into operators."""

    expressions: Expressions
    operators: Operators

    def compile(self, query: exp.Expr, lookup: Lookup) -> Relation:
        """The relation that the query gives. `lookup` finds the tables and views that it may
        name.
        """
        if isinstance(query, exp.SetOperation):
            word = query.key.upper()
            raise self._error(
                query, f"{word} is not supported yet", "write an INSERT INTO the same sink for each"
            )
        lookup = self._with_ctes(query, lookup)
        if isinstance(query, exp.Subquery):
            self._refuse_clauses(query, frozenset({"this", "alias", "with_"}))
            return self.compile(query.this, lookup)
        if not isinstance(query, exp.Select):
            raise self._error(query, "a SELECT must stand here")
        return self._select(query, lookup)

    def _select(self, select: exp.Select, lookup: Lookup) -> Relation:
        self._refuse_clauses(select, _READ_CLAUSES)
        source = self._from(select, lookup)
        if is_aggregated(select, self.expressions):
            return Aggregation(
                select, self._filtered(select, source), self.expressions, self.operators
            ).compile()
        if having := select.args.get("having"):
            raise self._error(having, "HAVING needs GROUP BY", "use WHERE")
        items = [item for node in select.expressions for item in self._items(node, source)]
        where = self._where(select, source)
        chosen = named_items(items)
        if where is None and _changes_nothing(chosen, source):
            return source.named(None)
        operator = self.operators.query(
            source.operator,
            (*(expression for _, expression in chosen), *carried_event_time(source)),
            where,
        )
        return Relation(
            operator=operator,
            attributes=tuple(attribute for attribute, _ in chosen),
            has_event_time=source.has_event_time,
            is_aggregated=source.is_aggregated,
        )

    def _filtered(self, select: exp.Select, source: Relation) -> Relation:
        """The input of an aggregation: WHERE comes first, as an operator of its own."""
        where = self._where(select, source)
        if where is None:
            return source
        kept = tuple(
            Expression(name=each.column, sql=column_sql(each)) for each in source.attributes
        )
        operator = self.operators.query(
            source.operator, (*kept, *carried_event_time(source)), where
        )
        return Relation(
            operator,
            source.attributes,
            source.has_event_time,
            source.is_aggregated,
            alias=source.alias,
        )

    def _where(self, select: exp.Select, source: Relation) -> Expression | None:
        where = select.args.get("where")
        if where is None:
            return None
        position = self.expressions.script.position(where.this)
        return Expression(
            name="where", sql=self.expressions.sql(where.this, source), position=position
        )

    def _items(self, node: exp.Expr, source: Relation) -> list[Item]:
        """The items that one entry of the select list stands for."""
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and node.is_star):
            return self._star(node, source)
        value = node.this if isinstance(node, exp.Alias) else node
        bound = self.expressions.bound(value, source)
        position = self.expressions.script.position(node)
        if isinstance(value, exp.Column):
            attribute, path = source.resolve(value, self.expressions.script)
            kind = None if path else attribute.type
            return [
                Item(
                    self.expressions.alias(node) or (path[-1] if path else attribute.name),
                    bound,
                    kind,
                    position,
                )
            ]
        return [Item(self.expressions.alias(node), bound, None, position)]

    def _star(self, node: exp.Expr, source: Relation) -> list[Item]:
        star = node if isinstance(node, exp.Star) else node.this
        if any(star.args.values()):
            raise self._error(
                node, "EXCEPT and REPLACE after '*' are not supported yet", "name the columns"
            )
        if isinstance(node, exp.Column) and not (
            len(node.parts) == 2 and source.is_called(node.table)
        ):
            tables = [source.alias] if source.alias else []
            message = f"'{node.table}' is no table of this query"
            raise self._error(node, message, did_you_mean(node.table, tables) or "name the columns")
        position = self.expressions.script.position(node)
        return [Item(each.name, reference(each), each.type, position) for each in source.attributes]

    def _from(self, select: exp.Select, lookup: Lookup) -> Relation:
        clause = select.args.get("from_")
        if clause is None:
            raise self._error(
                select, "SELECT needs FROM: a stream must have a source", "add FROM and a table"
            )
        source = clause.this
        if isinstance(source, exp.Subquery):
            self._refuse_clauses(source, frozenset({"this", "alias", "with_"}))
            relation = self.compile(source.this, self._with_ctes(source, lookup))
        elif isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            self._refuse_clauses(source, frozenset({"this", "alias"}))
            relation = lookup(source)
        else:
            raise self._error(
                source, "FROM takes a table, a view or a subquery", "name one of them"
            )
        alias = source.args.get("alias")
        if alias and alias.args.get("columns"):
            raise self._error(
                alias,
                "column names after a table's alias are not supported yet",
                "use AS in a subquery",
            )
        name = source.alias or (source.name if isinstance(source, exp.Table) else None)
        return relation.named(name)

    def _with_ctes(self, query: exp.Expr, lookup: Lookup) -> Lookup:
        clause = query.args.get("with_")
        if clause is None:
            return lookup
        if clause.args.get("recursive"):
            raise self._error(clause, "WITH RECURSIVE is not supported", "leave RECURSIVE out")
        known: dict[str, Relation] = {}

        def find(table: exp.Table) -> Relation:
            return known.get(table.name.lower()) or lookup(table)

        for each in clause.expressions:
            if each.args["alias"].args.get("columns"):
                raise self._error(
                    each, "column names after WITH are not supported yet", "use AS in the query"
                )
            known[each.alias.lower()] = self.compile(each.this, find)
        return find

    def _refuse_clauses(self, node: exp.Expr, read: frozenset[str]) -> None:
        for key, value in node.args.items():
            if key in read or not value:
                continue
            word = key.strip("_").upper()
            message, hint = _REFUSED_CLAUSES.get(
                key, (f"{word} is not supported here", "leave it out")
            )
            culprit = value[0] if isinstance(value, list) else value
            raise self._error(culprit if isinstance(culprit, exp.Expr) else node, message, hint)

    def _error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _changes_nothing(chosen: list[tuple[Attribute, Expression]], source: Relation) -> bool:
    return [attribute for attribute, _ in chosen] == list(source.attributes) and all(
        expression.sql == column_sql(attribute) for attribute, expression in chosen
    )
