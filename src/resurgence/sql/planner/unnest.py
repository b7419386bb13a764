"""UNNEST and LATERAL VIEW: each row once per element of one of its arrays or maps.

A function that returns several columns (posexplode(), inline(), explode() of a map) explodes an
array of structs and then selects the fields of the struct. In a select list it becomes a LATERAL
VIEW.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.values import Expression
from resurgence.sql.catalog.relation import Attribute, Relation, column_sql
from resurgence.sql.functions.registry import EXPLODES, GENERATORS
from resurgence.sql.functions.spark_template import placed
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.grouping.grouping import is_aggregated
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import filtered, hidden_columns
from resurgence.sql.syntax.known_types import fields, known_type

_ROW = "__row"
_VIEW = "__generated"


@dataclass(frozen=True)
class _Generated:
    """The result of a function for one row: the array whose elements are the rows, and the fields
    of an element that are the columns. Without fields the element itself is the column.
    """

    array: str
    fields: tuple[str, ...] = ()


def with_views(select: exp.Select, expressions: Expressions) -> exp.Select:
    """Move functions that return several columns from the select list into LATERAL VIEW."""
    found = [
        number
        for number, each in enumerate(select.expressions)
        if _is_generator(_call(each), expressions)
    ]
    if not found or is_aggregated(select, expressions):
        return select
    lifted = select.copy()
    for number in found:
        item = lifted.expressions[number]
        name = f"{_VIEW}_{number}"
        written = item.expressions if isinstance(item, exp.Aliases) else []
        columns = [item.args["alias"]] if isinstance(item, exp.Alias) else written
        alias = exp.TableAlias(
            this=exp.to_identifier(name), columns=[each.copy() for each in columns]
        )
        view = placed(exp.Lateral(this=_call(item).copy(), view=True, alias=alias), item)
        lifted.append("laterals", view)
        item.replace(placed(exp.Column(this=exp.Star(), table=exp.to_identifier(name)), item))
    return lifted


def _call(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item


def _is_generator(node: exp.Expr, expressions: Expressions) -> bool:
    return (
        isinstance(node, exp.Anonymous)
        and node.name.lower() in GENERATORS
        and not expressions.functions.is_user_defined(node.name)
    )


@dataclass(frozen=True)
class Unnests:
    """Compiles UNNEST and LATERAL VIEW of a FROM clause."""

    expressions: Expressions
    operators: Operators

    def join(self, relation: Relation, join: exp.Join) -> Relation:
        """Join each row with the elements of its own array. LEFT keeps rows without elements."""
        side, on = (join.side or "").upper(), join.args.get("on")
        is_plain = on is None or (isinstance(on, exp.Boolean) and bool(on.this))
        kinds = ("", "INNER", "OUTER", "CROSS")
        is_known = side in ("", "LEFT") and (join.kind or "").upper() in kinds
        if not is_known or join.method or join.args.get("using"):
            message = "this kind of join is not supported with UNNEST"
            hint = "Use CROSS JOIN UNNEST or LEFT JOIN UNNEST ... ON true."
            raise self._error(join, message, hint)
        if side and not is_plain:
            message = "LEFT JOIN UNNEST supports only the condition ON true"
            hint = "Filter the array first, as in filter(tags, x -> x <> '')."
            raise self._error(on or join, message, hint)
        exploded = self.view(relation, join.this, is_outer=bool(side))
        if on is None or is_plain:
            return exploded
        position = self.expressions.script.position(on)
        where = Expression(name="on", sql=self.expressions.sql(on, exploded), position=position)
        return filtered(exploded, where, self.operators)

    def view(self, relation: Relation, node: exp.Expr, is_outer: bool = False) -> Relation:
        """Compile UNNEST or LATERAL VIEW: each row once per element of an array."""
        alias = node.args.get("alias")
        call: exp.Expr | None = node.this if isinstance(node, exp.Lateral) else None
        if isinstance(call, exp.Unnest):
            node, call = call, None
            alias = node.args.get("alias") or alias
        arguments = node.expressions if call is None else call.expressions
        function = "explode" if call is None else call.name.lower()
        if function not in EXPLODES | GENERATORS or len(arguments) != 1:
            message = "UNNEST and LATERAL VIEW take one array"
            raise self._error(node, message, "Write it as in UNNEST(tags) AS t(tag).")
        if node.args.get("offset"):
            message = "WITH ORDINALITY is not supported"
            hint = "Use LATERAL VIEW posexplode(tags) t AS position, tag."
            raise self._error(node, message, hint)
        generated = self._generated(function, arguments[0], relation)
        table = alias.name if alias else None
        columns = [each.name for each in alias.columns] if alias else []
        names = columns or list(generated.fields) or [table or "unnest"]
        if len(names) != max(1, len(generated.fields)):
            count = max(1, len(generated.fields))
            message = f"column list has {len(names)} names for {count} columns"
            raise self._error(node, message, "Name all columns, in their order.")
        outer = is_outer or bool(node.args.get("outer")) or function.endswith("_outer")
        return self._unnested(relation, node, generated, outer, names, table)

    def _generated(self, function: str, node: exp.Expr, relation: Relation) -> _Generated:
        sql = self.expressions.sql(node, relation)
        kind = known_type(node, relation, self.expressions.script)
        is_map = kind is not None and kind.this == exp.DType.MAP
        entries = f"map_entries({sql})"
        if function.startswith("inline"):
            names = tuple(
                each.name
                for each in fields(kind.expressions[0] if kind and kind.expressions else None)
            )
            if not names:
                message = f"{function}() requires an array of structs with known fields"
                hint = "Cast it, as in inline(CAST(items AS ARRAY<STRUCT<id: INT, name: STRING>>))."
                raise self._error(node, message, hint)
            return _Generated(sql, names)
        if function.startswith("posexplode"):
            if is_map:
                values = "struct(i AS pos, e.key AS key, e.value AS value)"
                return _Generated(
                    f"transform({entries}, (e, i) -> {values})", ("pos", "key", "value")
                )
            values = "struct(i AS pos, e AS col)"
            return _Generated(f"transform({sql}, (e, i) -> {values})", ("pos", "col"))
        return _Generated(entries, ("key", "value")) if is_map else _Generated(sql)

    def _unnested(
        self,
        relation: Relation,
        node: exp.Expr,
        generated: _Generated,
        outer: bool,
        names: list[str],
        table: str | None,
    ) -> Relation:
        taken = {each.column.lower() for each in relation.attributes}
        columns: list[str] = []
        for name in names:
            column = name
            while column.lower() in taken:
                column = f"{column}_"
            taken.add(column.lower())
            columns.append(column)
        inputs = tuple(
            Expression(name=each.column, sql=column_sql(each)) for each in relation.attributes
        )
        exploded = Expression(
            name=_ROW if generated.fields else columns[0],
            sql=f"{'explode_outer' if outer else 'explode'}({generated.array})",
            position=self.expressions.script.position(node),
        )
        operator = self.operators.query(
            relation.operator, (*inputs, exploded, *hidden_columns(relation))
        )
        if generated.fields:
            pairs = zip(columns, generated.fields, strict=True)
            parts = tuple(
                Expression(name=column, sql=f"`{_ROW}`.`{field}`") for column, field in pairs
            )
            passed = tuple(Expression(name=each.name, sql=f"`{each.name}`") for each in inputs)
            operator = self.operators.query(operator, (*passed, *parts, *hidden_columns(relation)))
        shown = tuple(
            Attribute(name=name, column=column, table=table)
            for name, column in zip(names, columns, strict=True)
        )
        return replace(relation, operator=operator, attributes=(*relation.attributes, *shown))

    def _error(self, node: exp.Expr, message: str, hint: str) -> SqlError:
        return self.expressions.script.error(node, message, hint)
