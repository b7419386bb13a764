"""ASOF joins: each left row matches the newest right row that is not newer than itself.

The columns are compared by `MATCH_CONDITION (a.at >= b.at)`, as in Snowflake, where an unmatched
left row is returned; or by a part of ON, as in DuckDB, where it is returned only with LEFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.specs.window_aggregate import AsofSpec
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.ids import OperatorId
from resurgence.sql.catalog.relation import Attribute, Relation, RowKind
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.joins.joins import (
    Equality,
    Joins,
    conjuncts,
    disambiguated,
    names_in,
    original,
    time_term,
    unrenamed,
)
from resurgence.sql.planner.operators import Operators

_HINT = "Write it as in a ASOF JOIN b ON a.key = b.key AND a.at >= b.at."
_IS_RIGHT = "is_right"


@dataclass(frozen=True)
class AsofJoins:
    """Compiles the ASOF joins of a FROM clause."""

    expressions: Expressions
    operators: Operators
    read: frozenset[str] | None
    """The columns that the query names, or None for all."""

    def compile(self, left: Relation, right: Relation, node: exp.Join) -> Relation:
        """Return the columns of both sides that are read, append-only, with the event time of the
        left.
        """
        is_outer = self._is_outer(node)
        for side in (left, right):
            if side.kind is RowKind.UPDATING or not side.has_event_time:
                message = "ASOF JOIN requires append-only inputs with event time on both sides"
                raise self._error(node, message, "Add WATERMARK FOR at AS ... to both tables.")
        read = None if self.read is None else self.read | names_in(node)
        left, right = disambiguated(left.only(read), "l"), disambiguated(right.only(read), "r")
        equalities, is_strict = self._conditions(node, left, right)
        spec = AsofSpec(
            is_right=_IS_RIGHT,
            left=tuple(each.column for each in left.attributes),
            right=tuple(each.column for each in right.attributes),
            is_outer=is_outer,
            is_strict=is_strict,
        )
        # Null equals nothing: a right row with a null key matches none.
        never_null = [unrenamed(each.right, right) for each in equalities if not each.null_safe]
        where = " AND ".join(f"{key} IS NOT NULL" for key in never_null)
        union = self.operators.union(
            (
                self._side(left, [each.left for each in equalities], spec, is_right=False),
                self._side(right, [each.right for each in equalities], spec, where, is_right=True),
            )
        )
        keys = tuple(
            Expression(name=f"key_{number}", sql=f"`key_{number}`")
            for number in range(len(equalities))
        )
        attributes = (
            *(_plain(each, is_event_time=each.is_event_time) for each in left.attributes),
            *(_plain(each, is_event_time=False) for each in right.attributes),
        )
        return Relation(
            operator=self.operators.asof_join(union, keys, spec),
            attributes=attributes,
            has_event_time=True,
            unread=(*left.unread, *right.unread),
        )

    def _is_outer(self, node: exp.Join) -> bool:
        side, kind = (node.side or "").upper(), (node.kind or "").upper()
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
            words = " ".join(each for each in ("ASOF", side, kind, "JOIN") if each)
            raise self._error(node, f"{words} is not supported", "Use ASOF JOIN or ASOF LEFT JOIN.")
        return side == "LEFT" or bool(node.args.get("match_condition"))

    def _conditions(
        self, node: exp.Join, left: Relation, right: Relation
    ) -> tuple[list[Equality], bool]:
        """Return the equalities, and whether a match must be strictly older than the left row."""
        if node.args.get("using"):
            raise self._error(node, "ASOF JOIN requires ON instead of USING", _HINT)
        both = replace(left, attributes=(*left.attributes, *right.attributes))
        joins = Joins(self.expressions, self.operators)
        match, on = node.args.get("match_condition"), node.args.get("on")
        parts = [
            part
            for each in (match, on)
            if each is not None
            for part in conjuncts(self.expressions.bound(each, both))
        ]
        equalities: list[Equality] = []
        strict: list[bool] = []
        for part in parts:
            # In equal tuples, one pair can be about a single side.
            is_tuple = isinstance(part.unnest().args.get("this"), exp.Tuple)
            found = [] if is_tuple else list(joins.equality(part, left, right))
            equalities += found
            if not found:
                strict.append(self._is_strict(part, left, right, node))
        if len(strict) != 1:
            message = "ASOF JOIN requires exactly one comparison of the event times of both sides"
            raise self._error(node, message, _HINT)
        return equalities, strict[0]

    def _is_strict(self, part: exp.Expr, left: Relation, right: Relation, node: exp.Join) -> bool:
        part = part.unnest()
        times: tuple[int | None, int | None] = (None, None)
        if isinstance(part, exp.GT | exp.GTE):
            times = time_term(part.this, left), time_term(part.expression, right)
        elif isinstance(part, exp.LT | exp.LTE):
            times = time_term(part.expression, left), time_term(part.this, right)
        if times != (0, 0):
            message = "ASOF JOIN supports only equalities and one comparison of event times"
            raise self._error(node, message, _HINT)
        return isinstance(part, exp.GT | exp.LT)

    def _side(
        self,
        side: Relation,
        keys: Sequence[exp.Expr],
        spec: AsofSpec,
        where: str = "",
        *,
        is_right: bool,
    ) -> OperatorId:
        """Project one side of the union: its own columns, and nulls for those of the other."""
        own = {each.column: original(each) for each in side.attributes}
        select = (
            Expression(name=spec.is_right, sql="true" if is_right else "false"),
            *(
                Expression(name=f"key_{number}", sql=unrenamed(key, side))
                for number, key in enumerate(keys)
            ),
            *(
                Expression(name=name, sql=own.get(name, "NULL"))
                for name in (*spec.left, *spec.right)
            ),
            Expression(name=EVENT_TIME, sql=f"`{EVENT_TIME}`"),
        )
        filtered = Expression(name="where", sql=where) if where else None
        return self.operators.query(side.operator, select, filtered)

    def _error(self, node: exp.Expr, message: str, hint: str) -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _plain(attribute: Attribute, *, is_event_time: bool) -> Attribute:
    """Return a column without its window information."""
    return replace(attribute, window=None, outer_window=None, is_event_time=is_event_time)
