"""UNION, INTERSECT and EXCEPT: rows of two relations, with columns matched by position.

UNION ALL has no state. The others return each row once, so they must know all earlier rows. Over
rows of closed windows, with the window among the columns, the rows of one epoch suffice. Over any
other rows they store all rows keyed by all columns, and produce a changelog.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.specs.updating_query import UpdatingInput
from resurgence.graph.values import CHANGE, EVENT_TIME, Expression
from resurgence.ids import OperatorId
from resurgence.sql.catalog.relation import Attribute, Relation, RowKind, WindowPart, column_sql
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import hidden_columns, star_items
from resurgence.sql.planner.windows.window_functions import WindowFunctions

MATCHED_BY_POSITION = "Use the same number of columns on both sides: they are matched by position."
_CONDITIONS = {"INTERSECT": "bool_or(`second`)", "EXCEPT": "NOT bool_or(`second`)"}
"""Which rows of the first side are returned, by whether they are in the second."""


@dataclass(frozen=True)
class SetOperations:
    """Compiles one set operation over its two sides."""

    query: exp.SetOperation
    first: Relation
    second: Relation
    expressions: Expressions
    operators: Operators

    def compile(self) -> Relation:
        if len(self.first.attributes) != len(self.second.attributes):
            counts = f"{len(self.first.attributes)} and {len(self.second.attributes)} columns"
            raise self._error(f"the sides of {self._name} have {counts}", MATCHED_BY_POSITION)
        is_distinct = bool(self.query.args.get("distinct"))
        if not isinstance(self.query, exp.Union):
            if not is_distinct:
                raise self._error(f"{self._name} is not supported", f"Use {self._word}.")
            return self._compared()
        united = self._union_all()
        if not is_distinct:
            return united
        position = self.expressions.script.position(self.query)
        functions = WindowFunctions(self.query, united, self.expressions, self.operators)
        return functions.distinct(star_items(united, position))

    @property
    def _word(self) -> str:
        return self.query.key.upper()

    @property
    def _name(self) -> str:
        return self._word if self.query.args.get("distinct") else f"{self._word} ALL"

    def _union_all(self) -> Relation:
        sides = (self.first, self.second)
        is_updating = any(each.kind is RowKind.UPDATING for each in sides)
        has_time = all(each.has_event_time for each in sides)
        ready = tuple(self._aligned(each, has_time, is_updating=is_updating) for each in sides)
        closed = self._agree_on_windows() and all(each.kind is RowKind.CLOSED for each in sides)
        plain = RowKind.UPDATING if is_updating else RowKind.APPENDED
        return Relation(
            operator=self.operators.union(ready),
            attributes=self._shown(keep_windows=closed),
            has_event_time=has_time,
            kind=RowKind.CLOSED if closed else plain,
            width_micros=_common_width(sides),
        )

    def _compared(self) -> Relation:
        """Compile INTERSECT or EXCEPT: first-side rows that are, or are not, in the second."""
        sides = (self.first, self.second)
        has_window = any(
            one.window is other.window and one.window in (WindowPart.WHOLE, WindowPart.END)
            for one, other in zip(self.first.attributes, self.second.attributes, strict=True)
        )
        if has_window and all(each.kind is RowKind.CLOSED for each in sides):
            return self._closed()
        columns = ", ".join(f"`{each.column}`" for each in self.first.attributes)
        sql = f"SELECT {columns} FROM {{input_0}} {self._word} SELECT {columns} FROM {{input_1}}"
        stored = (self._stored(self.first), self._stored(self.second))
        operator = self.operators.updating_query(
            stored, sql, self.expressions.script.position(self.query)
        )
        return Relation(
            operator,
            self._shown(keep_windows=False),
            has_event_time=False,
            kind=RowKind.UPDATING,
        )

    def _closed(self) -> Relation:
        """Compile into GROUP BY, because Spark's set operation would compare event time too."""
        names = ", ".join(f"`{each.column}`" for each in self.first.attributes)
        sides = [
            f"SELECT {names}, `{EVENT_TIME}`, {second} AS `second` FROM {{input_{number}}}"
            for number, second in enumerate(("false", "true"))
        ]
        sql = (
            f"SELECT {names}, max(`{EVENT_TIME}`) AS `{EVENT_TIME}` FROM"
            f" ({' UNION ALL '.join(sides)}) GROUP BY {names}"
            f" HAVING bool_or(NOT `second`) AND {_CONDITIONS[self._word]}"
        )
        inputs = (self._aligned(self.first, True), self._aligned(self.second, True))
        operator = self.operators.closed_query(
            inputs, sql, self.expressions.script.position(self.query)
        )
        return Relation(
            operator,
            self._shown(keep_windows=self._agree_on_windows()),
            has_event_time=True,
            kind=RowKind.CLOSED,
            width_micros=_common_width((self.first, self.second)),
        )

    def _agree_on_windows(self) -> bool:
        pairs = zip(self.first.attributes, self.second.attributes, strict=True)
        return all(one.window is other.window for one, other in pairs)

    def _shown(self, *, keep_windows: bool) -> tuple[Attribute, ...]:
        """Return the columns of the first side, without a table qualifier."""
        return tuple(
            replace(
                one,
                table=None,
                window=one.window if keep_windows else None,
                outer_window=None,
                is_event_time=one.is_event_time and other.is_event_time,
            )
            for one, other in zip(self.first.attributes, self.second.attributes, strict=True)
        )

    def _aligned(self, side: Relation, has_time: bool, *, is_updating: bool = False) -> OperatorId:
        """Project a side onto the names and the order of the first. If the other side is a
        changelog, the rows of an append-only side become inserts.
        """
        hidden = [*hidden_columns(replace(side, has_event_time=has_time))]
        if is_updating and side.kind is not RowKind.UPDATING:
            hidden.append(Expression(name=CHANGE, sql="1"))
        return self.operators.query(side.operator, (*self._columns(side), *hidden))

    def _stored(self, side: Relation) -> UpdatingInput:
        columns = self._columns(side)
        return UpdatingInput(
            operator=side.operator,
            columns=columns,
            keys=tuple(each.name for each in columns),
            is_updating=side.kind is RowKind.UPDATING,
        )

    def _columns(self, side: Relation) -> tuple[Expression, ...]:
        return tuple(
            Expression(name=shown.column, sql=column_sql(each))
            for shown, each in zip(self.first.attributes, side.attributes, strict=True)
        )

    def _error(self, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(self.query, message, hint)


def _common_width(sides: tuple[Relation, Relation]) -> int | None:
    """Return the width of the windows if both sides have the same, else None."""
    widths = {each.width_micros for each in sides}
    return widths.pop() if len(widths) == 1 else None
