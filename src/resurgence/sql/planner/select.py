"""Compilation of SELECT: its FROM clause, its filters and its select list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.values import Expression
from resurgence.sql.catalog.relation import (
    WINDOW_TYPE,
    Attribute,
    Relation,
    WindowPart,
    column_sql,
    reference,
)
from resurgence.sql.functions.registry import EXPLODES
from resurgence.sql.functions.spark_template import placed
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.grouping.aggregate import Aggregation
from resurgence.sql.planner.grouping.grouping import is_aggregated
from resurgence.sql.planner.joins.asof_joins import AsofJoins
from resurgence.sql.planner.joins.joins import Joins, conjuncts, names_in
from resurgence.sql.planner.joins.lookups import LookupJoins, LookupRelation, check_version
from resurgence.sql.planner.joins.scalar_subqueries import ScalarSubqueries
from resurgence.sql.planner.joins.subqueries import Subqueries
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import (
    Item,
    column_and_window,
    filtered,
    hidden_columns,
    named_items,
    star_items,
)
from resurgence.sql.planner.set_operations import SetOperations
from resurgence.sql.planner.unnest import Unnests, with_views
from resurgence.sql.planner.windows.first_rows import bound_of
from resurgence.sql.planner.windows.window_functions import WindowFunctions, has_window_functions
from resurgence.sql.planner.windows.window_tables import WindowTables
from resurgence.sql.syntax.clauses import refuse_unread
from resurgence.sql.syntax.dialect import to_spark
from resurgence.sql.syntax.flink_syntax import WindowTable
from resurgence.sql.syntax.hints import check_hints
from resurgence.sql.syntax.known_types import field_type, fields
from resurgence.sql.syntax.spelling import with_aliases, with_condition, with_windows

Lookup = Callable[[exp.Table], Relation]

_READ_CLAUSES = frozenset(
    {
        *("with_", "hint", "expressions", "distinct", "from_", "joins", "laterals"),
        *("where", "group", "having"),
    }
)
_JOIN_CLAUSES = frozenset({"this", "on", "using", "side", "kind", "method", "match_condition"})
_QUALIFY = "__qualify"


@dataclass(frozen=True)
class Selects:
    """Compiles queries into operators."""

    expressions: Expressions
    operators: Operators

    def compile(self, query: exp.Expr, lookup: Lookup) -> Relation:
        """Return the relation that the query produces. `lookup` finds the tables and views that it
        may name.
        """
        lookup = self._with_ctes(query, lookup)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, lookup)
        if isinstance(query, exp.Subquery):
            self._refuse_clauses(query, frozenset({"this", "alias", "with_"}))
            return self.compile(query.this, lookup)
        if not isinstance(query, exp.Select):
            raise self._error(query, "expected a SELECT")
        return self._select(query, lookup)

    def _set_operation(self, query: exp.SetOperation, lookup: Lookup) -> Relation:
        self._refuse_clauses(query, frozenset({"this", "expression", "with_", "distinct"}))
        first, second = (self.compile(each, lookup) for each in (query.this, query.expression))
        return SetOperations(query, first, second, self.expressions, self.operators).compile()

    def _select(self, select: exp.Select, lookup: Lookup) -> Relation:
        select = with_windows(select, self.expressions.script)
        if self._keeps_event_time(select, lookup):
            select = self._window_tables.grouped(select)
        where = select.args.get("where")
        if where is not None and where.find(exp.Query):
            # Its subqueries are removed in place, and the query may be compiled again.
            select = select.copy()
        select = with_views(select, self.expressions)
        if select.args.get("qualify"):
            return self._qualified(select, lookup)
        self._refuse_clauses(select, _READ_CLAUSES)
        check_hints(select, self.expressions.script)
        distinct = select.args.get("distinct")
        if distinct and distinct.args.get("on"):
            hint = "Use QUALIFY row_number() OVER (PARTITION BY key ORDER BY at DESC) = 1."
            raise self._error(distinct, "DISTINCT ON is not supported", hint)
        source = self._subqueries(select, lookup).applied(select, self._from(select, lookup))
        select, source = ScalarSubqueries(
            self.expressions, self.operators, lambda query: self._rows(query, lookup)
        ).applied(select, source)
        select = with_aliases(select, source, self.expressions)
        source = self._first_rows(select, source)
        if is_aggregated(select, self.expressions):
            groups = Aggregation(
                select, self._filtered(select, source), self.expressions, self.operators
            ).compile()
            return self._distinct(select, groups) if select.args.get("distinct") else groups
        if having := select.args.get("having"):
            raise self._error(having, "HAVING requires GROUP BY", "Use WHERE.")
        items = [item for node in select.expressions for item in self._items(node, source)]
        is_distinct, is_over = bool(select.args.get("distinct")), has_window_functions(select)
        if is_distinct or is_over:
            functions = WindowFunctions(
                select, self._filtered(select, source), self.expressions, self.operators
            )
            if not is_over:
                return functions.distinct(items)
            rows = functions.over(items)
            return self._distinct(select, rows) if is_distinct else rows
        where = self._where(select, source)
        chosen = named_items(items)
        if where is None and _changes_nothing(chosen, source):
            return replace(source.named(None), unread=())
        operator = self.operators.query(
            source.operator,
            (*(expression for _, expression in chosen), *hidden_columns(source)),
            where,
        )
        return Relation(
            operator=operator,
            attributes=tuple(attribute for attribute, _ in chosen),
            has_event_time=source.has_event_time,
            kind=source.kind,
            width_micros=source.width_micros,
        )

    def _subqueries(self, select: exp.Select, lookup: Lookup) -> Subqueries:
        return Subqueries(
            self.expressions,
            self._joins(select),
            lambda query: self.compile(query, lookup),
            lambda query: self._rows(query, lookup),
        )

    def _rows(self, select: exp.Select, lookup: Lookup) -> Relation:
        """Compile FROM and WHERE of a subquery, without its select list. For a lookup table, return
        the table.
        """
        item = select.args["from_"].this
        if isinstance(item, exp.Table) and not select.args.get("joins"):
            table = self._from_item(item, lookup, select)
            if isinstance(table, LookupRelation):
                return table
        source = self._subqueries(select, lookup).applied(select, self._from(select, lookup))
        return self._filtered(select, source)

    def _distinct(self, select: exp.Select, rows: Relation) -> Relation:
        """Return the distinct rows of a result."""
        position = self.expressions.script.position(select)
        functions = WindowFunctions(select, rows, self.expressions, self.operators)
        return functions.distinct(star_items(rows, position))

    def _qualified(self, select: exp.Select, lookup: Lookup) -> Relation:
        """Compile QUALIFY: a filter over the results of functions with OVER, which the select list
        or the condition itself calls.
        """
        source = self._from(select, lookup)
        select = with_aliases(select, source, self.expressions)
        condition = select.args["qualify"].this
        aliases = {
            each.alias.lower(): each.this
            for each in select.expressions
            if isinstance(each, exp.Alias)
        }

        def step(node: exp.Expr) -> exp.Expr:
            is_alias = isinstance(node, exp.Column) and len(node.parts) == 1
            if is_alias and not source.find(node.name) and node.name.lower() in aliases:
                return exp.Paren(this=aliases[node.name.lower()].copy())
            return node

        spelled = condition.transform(step, copy=True)
        if not spelled.find(exp.Window):
            message = "QUALIFY requires a function with OVER"
            raise self._error(condition, message, "Use WHERE or HAVING.")
        inner = select.copy()
        inner.set("qualify", None)
        test = exp.Alias(this=spelled, alias=exp.to_identifier(_QUALIFY))
        test.meta["start"] = self.expressions.script.offset(condition)
        inner.append("expressions", test)
        relation = self._bounded(
            self._select(inner, lookup), spelled, lambda node: isinstance(node, exp.Window)
        )
        shown, hidden = relation.attributes[:-1], relation.attributes[-1]
        columns = tuple(Expression(name=each.column, sql=column_sql(each)) for each in shown)
        where = Expression(
            name="qualify",
            sql=column_sql(hidden),
            position=self.expressions.script.position(condition),
        )
        operator = self.operators.query(
            relation.operator, (*columns, *hidden_columns(relation)), where
        )
        return replace(relation, operator=operator, attributes=shown)

    def _first_rows(self, select: exp.Select, source: Relation) -> Relation:
        """Return the source without rows that WHERE drops by their row_number()."""
        where, numbered = select.args.get("where"), self.operators.numberings.get(source.operator)
        if where is None or numbered is None:
            return source
        numbers = {
            column_sql(each) for each in source.attributes if numbered.is_number(each.column)
        }
        condition = self.expressions.bound(where.this, source)
        return self._bounded(source, condition, lambda node: to_spark(node) in numbers)

    def _bounded(
        self, source: Relation, condition: exp.Expr, is_number: Callable[[exp.Expr], bool]
    ) -> Relation:
        """Return the source without rows that a condition drops by their row_number()."""
        numbered = self.operators.numberings.get(source.operator)
        limit = bound_of(conjuncts(condition), is_number)
        if numbered is None or limit is None or limit < 1:
            return source
        return replace(source, operator=numbered.limited(limit, self.operators))

    def _filtered(self, select: exp.Select, source: Relation) -> Relation:
        """Apply WHERE as a separate operator, before an aggregation."""
        return filtered(source, self._where(select, source), self.operators)

    def _where(self, select: exp.Select, source: Relation) -> Expression | None:
        where = select.args.get("where")
        if where is None:
            return None
        position = self.expressions.script.position(where.this)
        return Expression(
            name="where", sql=self.expressions.sql(where.this, source), position=position
        )

    def _items(self, node: exp.Expr, source: Relation) -> list[Item]:
        """Return the items that one entry of the select list expands to."""
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and node.is_star):
            return self._star(node, source)
        value = node.this if isinstance(node, exp.Alias) else node
        if isinstance(value, exp.Anonymous) and value.name.lower() in EXPLODES:
            return [self._explode_item(node, value, source)]
        bound = self.expressions.bound(self.expressions.with_over(value), source)
        position = self.expressions.script.position(node)
        if isinstance(value, exp.Column):
            attribute, path = source.resolve(value, self.expressions.script)
            kind = None if path else attribute.type
            _, part = column_and_window(bound, source)
            return [
                Item(
                    self.expressions.alias(node) or (path[-1] if path else attribute.name),
                    bound,
                    kind,
                    position,
                    part,
                    attribute.is_event_time and not path,
                    attribute.is_processing_time and not path,
                )
            ]
        _, part = column_and_window(bound, source)
        kind = WINDOW_TYPE if part is WindowPart.WHOLE else None
        return [Item(self.expressions.alias(node), bound, kind, position, part)]

    def _explode_item(self, node: exp.Expr, call: exp.Anonymous, source: Relation) -> Item:
        """Return the item of explode() in a select list: one row per element."""
        if len(call.expressions) != 1:
            hint = "Write it as in explode(tags)."
            raise self._error(call, f"{call.name}() takes one array", hint)
        inner = self.expressions.bound(call.expressions[0], source)
        function = "explode_outer" if "outer" in call.name.lower() else "explode"
        bound = exp.Anonymous(this=function, expressions=[inner])
        name = self.expressions.alias(node) or "col"
        return Item(name, bound, None, self.expressions.script.position(node))

    def _star(self, node: exp.Expr, source: Relation) -> list[Item]:
        star = node if isinstance(node, exp.Star) else node.this
        if any(value for key, value in star.args.items() if key != "except_"):
            raise self._error(node, "only EXCEPT can follow '*'", "Name the columns.")
        if isinstance(node, exp.Column) and not (
            len(node.parts) == 2 and source.is_called(node.table)
        ):
            tables = source.tables
            *owner, _ = node.parts
            if source.find(owner[0].name) or source.is_called(owner[0].name):
                return self._fields(node, source)
            message = f"there is no table '{node.table}' in this query"
            hint = did_you_mean(node.table, tables) or "Name the columns."
            raise self._error(node, message, hint)
        script = self.expressions.script
        position = script.position(node)
        table = node.table if isinstance(node, exp.Column) else None
        listed = tuple(
            each
            for each in source.attributes
            if not each.is_hidden and (table is None or (each.table or "").lower() == table.lower())
        )
        for each in star.args.get("except_") or []:
            attribute, path = replace(source, attributes=listed).resolve(each, script)
            if path:
                raise self._error(each, "EXCEPT takes columns, not struct fields", "Name a column.")
            listed = tuple(one for one in listed if one is not attribute)
        if not listed:
            raise self._error(node, "EXCEPT removes all columns", "Name the columns to select.")
        return star_items(replace(source, attributes=listed), position)

    def _fields(self, node: exp.Column, source: Relation) -> list[Item]:
        """Return the fields of a struct: `s.*`."""
        *owner, star = node.parts
        script = self.expressions.script
        inner_first = [each.copy() for each in reversed(owner)]
        parts = dict(zip(("this", "table", "db", "catalog"), inner_first, strict=False))
        column = placed(exp.Column(**parts), node)
        attribute, path = source.resolve(column, script)
        found = fields(field_type(attribute, path))
        name = ".".join(each.name for each in owner)
        if not found or star.args.get("except_"):
            message = f"the fields of '{name}' are unknown"
            if found:
                message = f"EXCEPT removes columns of a table, but '{name}' is a struct"
            raise self._error(node, message, f"Name the fields, as in {name}.field.")
        items = []
        for each in found:
            bound = reference(attribute, (*path, each.name))
            _, part = column_and_window(bound, source)
            kind = each.kind.sql("spark") if each.kind else None
            items.append(Item(each.name, bound, kind, script.position(node), part))
        return items

    def _from(self, select: exp.Select, lookup: Lookup) -> Relation:
        clause = select.args.get("from_")
        if clause is None:
            raise self._error(select, "SELECT requires FROM", "Add FROM and a table.")
        relation = self._from_item(clause.this, lookup, select)
        joins, lookups = self._joins(select), LookupJoins(self.expressions, self.operators)
        unnests = Unnests(self.expressions, self.operators)
        if isinstance(relation, LookupRelation):
            raise lookups.refused(relation, clause.this)
        for join in select.args.get("joins") or []:
            self._refuse_clauses(join, _JOIN_CLAUSES)
            if isinstance(join.this, exp.Unnest | exp.Lateral):
                relation = unnests.join(relation, join)
                continue
            right = self._from_item(join.this, lookup, select)
            if (join.method or "").upper() == "ASOF" and not isinstance(right, LookupRelation):
                relation = AsofJoins(self.expressions, self.operators, joins.read).compile(
                    relation, right, join
                )
                continue
            stated = with_condition(join, relation, right, select, self.expressions)
            if isinstance(right, LookupRelation):
                relation = lookups.compile(relation, right, stated)
                continue
            relation = joins.compile(relation, right, stated)
        for lateral in select.args.get("laterals") or []:
            relation = unnests.view(relation, lateral)
        return relation

    def _joins(self, select: exp.Select) -> Joins:
        """Return the compiler of a query's joins. It drops columns that the query does not name."""
        read = None if self.operators.diverts_late_rows else self._names_read(select)
        return Joins(self.expressions, self.operators, read)

    def _names_read(self, select: exp.Select) -> frozenset[str] | None:
        """Return the column names in a query, or None for all columns."""
        return None if select.is_star else names_in(select)

    @property
    def _window_tables(self) -> WindowTables:
        return WindowTables(self.expressions, self.operators)

    def _keeps_event_time(self, select: exp.Select, lookup: Lookup) -> bool:
        """Return whether the joins of a query preserve the event time of the first table's rows."""
        return all(
            isinstance(join.this, exp.Unnest | exp.Lateral)
            or (
                isinstance(join.this, exp.Table)
                and isinstance(join.this.this, exp.Identifier)
                and isinstance(lookup(join.this), LookupRelation)
            )
            for join in select.args.get("joins") or []
        )

    def _from_item(self, source: exp.Expr, lookup: Lookup, select: exp.Select) -> Relation:
        if isinstance(source, exp.Subquery):
            self._refuse_clauses(source, frozenset({"this", "alias", "with_"}))
            relation = self.compile(source.this, self._with_ctes(source, lookup))
        elif isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            self._refuse_clauses(source, frozenset({"this", "alias", "version"}))
            relation = lookup(source)
            check_version(source, relation, self.expressions.script)
        elif isinstance(source, WindowTable):
            tables = self._window_tables
            data = self._from_item(tables.data(source), lookup, select)
            if isinstance(data, LookupRelation):
                raise LookupJoins(self.expressions, self.operators).refused(data, source)
            relation = tables.rows(source, data, self._names_read(select))
        else:
            message = "FROM requires a table, a view or a subquery"
            raise self._error(source, message, "Name one of them.")
        alias = source.args.get("alias")
        if alias and alias.args.get("columns"):
            relation = relation.with_names(alias.columns, self.expressions.script)
        name = source.alias or (source.name if isinstance(source, exp.Table) else None)
        return relation.named(name)

    def _with_ctes(self, query: exp.Expr, lookup: Lookup) -> Lookup:
        clause = query.args.get("with_")
        if clause is None:
            return lookup
        if clause.args.get("recursive"):
            raise self._error(clause, "WITH RECURSIVE is not supported", "Remove RECURSIVE.")
        known: dict[str, Relation] = {}

        def find(table: exp.Table) -> Relation:
            return known.get(table.name.lower()) or lookup(table)

        for each in clause.expressions:
            relation = self.compile(each.this, find)
            if names := each.args["alias"].args.get("columns"):
                relation = relation.with_names(names, self.expressions.script)
            known[each.alias.lower()] = relation
        return find

    def _refuse_clauses(self, node: exp.Expr, read: frozenset[str]) -> None:
        refuse_unread(node, read, self.expressions.script)

    def _error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _changes_nothing(chosen: list[tuple[Attribute, Expression]], source: Relation) -> bool:
    return [attribute for attribute, _ in chosen] == list(source.named(None).attributes) and all(
        expression.sql == column_sql(attribute) for attribute, expression in chosen
    )
