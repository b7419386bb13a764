"""UNNEST and LATERAL VIEW explode(): each row once for every element of an array in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.model import Expression
from resurgence.sql.expressions import Expressions
from resurgence.sql.functions import EXPLODES
from resurgence.sql.operators import Operators
from resurgence.sql.projection import carried, filtered
from resurgence.sql.relation import Attribute, Relation, column_sql


@dataclass(frozen=True)
class Unnests:
    """Compiles what unnests arrays in a FROM clause."""

    expressions: Expressions
    operators: Operators

    def join(self, relation: Relation, join: exp.Join) -> Relation:
        """A join with UNNEST: each row meets the elements of its own array. With LEFT, a row
        without elements stays.
        """
        side, on = (join.side or "").upper(), join.args.get("on")
        is_plain = on is None or (isinstance(on, exp.Boolean) and bool(on.this))
        kinds = ("", "INNER", "OUTER", "CROSS")
        is_known = side in ("", "LEFT") and (join.kind or "").upper() in kinds
        if not is_known or join.method or join.args.get("using"):
            message = "a row meets the elements of its own array, and nothing else"
            raise self._error(
                join, message, "use CROSS JOIN UNNEST or LEFT JOIN UNNEST ... ON true"
            )
        if side and not is_plain:
            message = "LEFT JOIN UNNEST takes ON true, and no other condition"
            raise self._error(on or join, message, "filter the array first: filter(tags, x -> ...)")
        exploded = self.view(relation, join.this, is_outer=bool(side))
        if on is None or is_plain:
            return exploded
        position = self.expressions.script.position(on)
        where = Expression(name="on", sql=self.expressions.sql(on, exploded), position=position)
        return filtered(exploded, where, self.operators)

    def view(self, relation: Relation, node: exp.Expr, is_outer: bool = False) -> Relation:
        """Each row once for every element of an array in it: UNNEST and LATERAL VIEW explode()."""
        alias = node.args.get("alias")
        call: exp.Expr | None = node.this if isinstance(node, exp.Lateral) else None
        if isinstance(call, exp.Unnest):
            node, call = call, None
            alias = node.args.get("alias") or alias
        arguments = node.expressions if call is None else call.expressions
        named = call is None or call.name.lower() in EXPLODES
        if not named or len(arguments) != 1:
            raise self._error(
                node, "one array can be unnested here", "as in UNNEST(tags) AS t(tag)"
            )
        columns = alias.columns if alias else []
        if len(columns) > 1 or node.args.get("offset"):
            message = "an array has elements, and no positions or keys beside them here"
            raise self._error(node, message, "name one column, as in UNNEST(tags) AS t(tag)")
        table = alias.name if alias else None
        name = columns[0].name if columns else (table or "unnest")
        taken = {each.column.lower() for each in relation.attributes}
        column = name
        while column.lower() in taken:
            column = f"{column}_"
        outer = (
            is_outer
            or bool(node.args.get("outer"))
            or (call is not None and "outer" in call.name.lower())
        )
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

    def _error(self, node: exp.Expr, message: str, hint: str) -> SqlError:
        return self.expressions.script.error(node, message, hint)
