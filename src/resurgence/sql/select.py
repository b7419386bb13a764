"""SELECT to operators: where its rows come from, which it keeps, what it makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.model import Expression
from resurgence.ids import OperatorId
from resurgence.sql.aggregate import Aggregation
from resurgence.sql.expressions import Expressions
from resurgence.sql.grouping import is_aggregated
from resurgence.sql.joins import Joins
from resurgence.sql.operators import Operators
from resurgence.sql.projection import Item, carried, named_items, told_by
from resurgence.sql.relation import Attribute, Relation, RowKind, column_sql, reference
from resurgence.sql.subqueries import Subqueries
from resurgence.sql.window_functions import WindowFunctions, has_window_functions

Lookup = Callable[[exp.Table], Relation]

_READ_CLAUSES = frozenset(
    {"with_", "expressions", "distinct", "from_", "joins", "laterals", "where", "group", "having"}
)
_EXPLODES = frozenset({"explode", "explode_outer", "unnest"})
_REFUSED_CLAUSES: Mapping[str, tuple[str, str]] = {
    "order": (
        "ORDER BY is not supported: a stream has no last row to sort up to",
        "sort where the output is read",
    ),
    "limit": ("LIMIT is not supported yet", "filter with WHERE"),
    "offset": ("OFFSET is not supported", "filter with WHERE"),
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
        lookup = self._with_ctes(query, lookup)
        if isinstance(query, exp.SetOperation):
            return self._union(query, lookup)
        if isinstance(query, exp.Subquery):
            self._refuse_clauses(query, frozenset({"this", "alias", "with_"}))
            return self.compile(query.this, lookup)
        if not isinstance(query, exp.Select):
            raise self._error(query, "a SELECT must stand here")
        return self._select(query, lookup)

    def _union(self, query: exp.SetOperation, lookup: Lookup) -> Relation:
        word = query.key.upper()
        if not isinstance(query, exp.Union) or query.args.get("distinct"):
            raise self._error(query, f"{word} is not supported yet", "use UNION ALL")
        self._refuse_clauses(query, frozenset({"this", "expression", "with_", "distinct"}))
        sides = [self.compile(each, lookup) for each in (query.this, query.expression)]
        first, second = sides
        if len(first.attributes) != len(second.attributes):
            message = f"UNION ALL of {len(first.attributes)} and {len(second.attributes)} columns"
            raise self._error(query, message, "columns are matched by position")
        if len({each.kind is RowKind.UPDATING for each in sides}) > 1:
            message = "UNION ALL of rows that stay and rows that may be taken back"
            raise self._error(query, message, "aggregate both sides, or neither")
        has_time = all(each.has_event_time for each in sides)
        ready = tuple(self._lined_up(each, first, has_time) for each in sides)
        windows = all(
            one.window is other.window
            for one, other in zip(first.attributes, second.attributes, strict=True)
        )
        closed = windows and all(each.kind is RowKind.CLOSED for each in sides)
        plain = RowKind.UPDATING if first.kind is RowKind.UPDATING else RowKind.APPENDED
        attributes = tuple(
            each if closed else replace(each, window=None) for each in first.attributes
        )
        return Relation(
            operator=self.operators.union(ready),
            attributes=tuple(replace(each, table=None) for each in attributes),
            has_event_time=has_time,
            kind=RowKind.CLOSED if closed else plain,
            fixed_width=all(each.fixed_width for each in sides),
        )

    def _lined_up(self, side: Relation, first: Relation, has_time: bool) -> OperatorId:
        """A side with the names of the first, in its order, and no more than that."""
        bare = replace(side, has_event_time=has_time)
        select = tuple(
            Expression(name=shown.column, sql=column_sql(each))
            for shown, each in zip(first.attributes, side.attributes, strict=True)
        )
        return self.operators.query(side.operator, (*select, *carried(bare)))

    def _select(self, select: exp.Select, lookup: Lookup) -> Relation:
        self._refuse_clauses(select, _READ_CLAUSES)
        source = self._from(select, lookup)
        joins = Joins(self.expressions, self.operators)
        source = Subqueries(
            self.expressions,
            joins,
            lambda query: self.compile(query, lookup),
            lambda query: self._filtered(query, self._from(query, lookup)),
        ).applied(select, source)
        if is_aggregated(select, self.expressions):
            return Aggregation(
                select, self._filtered(select, source), self.expressions, self.operators
            ).compile()
        if having := select.args.get("having"):
            raise self._error(having, "HAVING needs GROUP BY", "use WHERE")
        items = [item for node in select.expressions for item in self._items(node, source)]
        is_distinct, is_over = bool(select.args.get("distinct")), has_window_functions(select)
        if is_distinct or is_over:
            functions = WindowFunctions(
                select, self._filtered(select, source), self.expressions, self.operators
            )
            if is_distinct and is_over:
                message = "DISTINCT and OVER in one query are not supported"
                raise self._error(select.args["distinct"], message, "use a subquery in FROM")
            return functions.distinct(items) if is_distinct else functions.over(items)
        where = self._where(select, source)
        chosen = named_items(items)
        if where is None and _changes_nothing(chosen, source):
            return source.named(None)
        operator = self.operators.query(
            source.operator,
            (*(expression for _, expression in chosen), *carried(source)),
            where,
        )
        return Relation(
            operator=operator,
            attributes=tuple(attribute for attribute, _ in chosen),
            has_event_time=source.has_event_time,
            kind=source.kind,
            fixed_width=source.fixed_width,
        )

    def _filtered(self, select: exp.Select, source: Relation) -> Relation:
        """The input of an aggregation: WHERE comes first, as an operator of its own."""
        where = self._where(select, source)
        if where is None:
            return source
        kept = tuple(
            Expression(name=each.column, sql=column_sql(each)) for each in source.attributes
        )
        operator = self.operators.query(source.operator, (*kept, *carried(source)), where)
        return Relation(
            operator,
            source.attributes,
            source.has_event_time,
            source.kind,
            source.fixed_width,
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
        if isinstance(value, exp.Anonymous) and value.name.lower() in _EXPLODES:
            return [self._explode_item(node, value, source)]
        bound = self.expressions.bound_over(value, source)
        position = self.expressions.script.position(node)
        if isinstance(value, exp.Column):
            attribute, path = source.resolve(value, self.expressions.script)
            kind = None if path else attribute.type
            _, part = told_by(bound, source)
            return [
                Item(
                    self.expressions.alias(node) or (path[-1] if path else attribute.name),
                    bound,
                    kind,
                    position,
                    part,
                )
            ]
        return [Item(self.expressions.alias(node), bound, None, position)]

    def _explode_item(self, node: exp.Expr, call: exp.Anonymous, source: Relation) -> Item:
        """explode() in a select list: a row for every element."""
        if len(call.expressions) != 1:
            raise self._error(call, f"{call.name}() takes one array", "as in explode(tags)")
        inner = self.expressions.bound(call.expressions[0], source)
        function = "explode_outer" if "outer" in call.name.lower() else "explode"
        bound = exp.Anonymous(this=function, expressions=[inner])
        name = self.expressions.alias(node) or "col"
        return Item(name, bound, None, self.expressions.script.position(node))

    def _star(self, node: exp.Expr, source: Relation) -> list[Item]:
        star = node if isinstance(node, exp.Star) else node.this
        if any(star.args.values()):
            raise self._error(
                node, "EXCEPT and REPLACE after '*' are not supported yet", "name the columns"
            )
        if isinstance(node, exp.Column) and not (
            len(node.parts) == 2 and source.is_called(node.table)
        ):
            tables = source.tables
            message = f"'{node.table}' is no table of this query"
            raise self._error(node, message, did_you_mean(node.table, tables) or "name the columns")
        position = self.expressions.script.position(node)
        table = node.table if isinstance(node, exp.Column) else None
        return [
            Item(each.name, reference(each), each.type, position, each.window)
            for each in source.attributes
            if table is None or (each.table or "").lower() == table.lower()
        ]

    def _from(self, select: exp.Select, lookup: Lookup) -> Relation:
        clause = select.args.get("from_")
        if clause is None:
            raise self._error(
                select, "SELECT needs FROM: a stream must have a source", "add FROM and a table"
            )
        relation = self._from_item(clause.this, lookup)
        for join in select.args.get("joins") or []:
            if isinstance(join.this, exp.Unnest | exp.Lateral):
                relation = self._exploded(relation, join.this)
                continue
            right = self._from_item(join.this, lookup)
            relation = Joins(self.expressions, self.operators).compile(relation, right, join)
        for lateral in select.args.get("laterals") or []:
            relation = self._exploded(relation, lateral)
        return relation

    def _exploded(self, relation: Relation, node: exp.Expr) -> Relation:
        """Each row once for every element of an array in it: UNNEST and LATERAL VIEW explode()."""
        call: exp.Expr | None = node.this if isinstance(node, exp.Lateral) else None
        if isinstance(call, exp.Unnest):
            node, call = call, None
        arguments = node.expressions if call is None else call.expressions
        named = call is None or call.name.lower() in _EXPLODES
        if not named or len(arguments) != 1:
            raise self._error(
                node, "one array can be unnested here", "as in UNNEST(tags) AS t(tag)"
            )
        alias = node.args.get("alias")
        columns = alias.columns if alias else []
        table = alias.name if alias else None
        name = columns[0].name if columns else (table or "unnest")
        taken = {each.column.lower() for each in relation.attributes}
        column = name
        while column.lower() in taken:
            column = f"{column}_"
        outer = bool(node.args.get("outer")) or (call is not None and "outer" in call.name.lower())
        function = "explode_outer" if outer else "explode"
        kept = tuple(
            Expression(name=each.column, sql=column_sql(each)) for each in relation.attributes
        )
        made = Expression(
            name=column,
            sql=f"{function}({self.expressions.sql(arguments[0], relation)})",
            position=self.expressions.script.position(node),
        )
        operator = self.operators.query(relation.operator, (*kept, made, *carried(relation)))
        attribute = Attribute(name=name, column=column, table=table)
        return replace(relation, operator=operator, attributes=(*relation.attributes, attribute))

    def _from_item(self, source: exp.Expr, lookup: Lookup) -> Relation:
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
    return [attribute for attribute, _ in chosen] == list(source.named(None).attributes) and all(
        expression.sql == column_sql(attribute) for attribute, expression in chosen
    )
