"""Event time and watermark of a source: from a WATERMARK clause, from options, or from the
connector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from resurgence.errors import SqlError, did_you_mean
from resurgence.graph.specs.source import WatermarkSpec
from resurgence.graph.values import Column
from resurgence.ids import OperatorId
from resurgence.sql.catalog.relation import Attribute, Relation, column_sql
from resurgence.sql.catalog.table_columns import attributes, is_processing_time
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.syntax.dialect import PlanningTime
from resurgence.sql.syntax.intervals import interval_micros
from resurgence.sql.syntax.parse import Script

EVENT_TIME_FIELD = "event_time_field"
WATERMARK_FIELD = "watermark_field"
_DEFAULT_DELAY_MICROS = 1_000_000


@dataclass(frozen=True)
class Named:
    """A column that an option names."""

    name: str
    node: exp.Expr


@dataclass(frozen=True)
class EventTime:
    """Decides what of a source is event time."""

    columns: tuple[Column, ...]
    default: str | None
    """The column that is event time where the user names none, if the table has it."""
    expressions: Expressions

    @property
    def script(self) -> Script:
        return self.expressions.script

    def watermark(
        self, clauses: Sequence[exp.WatermarkColumnConstraint], options: Mapping[str, Named]
    ) -> WatermarkSpec | None:
        """None if the source has no event time. `options` are those of the two fields."""
        named, marked = options.get(EVENT_TIME_FIELD), options.get(WATERMARK_FIELD)
        if len(clauses) > 1:
            raise self.script.error(
                clauses[1], "a table has one WATERMARK", "leave one of them out"
            )
        if not clauses:
            return self._without_clause(named, marked)
        clause = clauses[0]
        column = self._timestamp(clause.this.name, clause.this)
        if marked is not None:
            raise self.script.error(
                marked.node,
                f"the watermark is given by the WATERMARK clause and by {WATERMARK_FIELD}",
                "leave one of them out",
            )
        if named is not None and named.name.lower() != column.name.lower():
            raise self.script.error(
                named.node,
                f"event time is '{column.name}' by the WATERMARK clause and '{named.name}' here",
                "leave one of them out",
            )
        for each in clause.expression.find_all(PlanningTime):
            hint = "leave WATERMARK out: windows then use processing time"
            raise self.script.error(each, f"a watermark cannot be made of {each.name}()", hint)
        expression = _with_interval(clause.expression)
        row = Relation(OperatorId(""), attributes(self.columns), has_event_time=False)
        return WatermarkSpec(
            event_time=column.name,
            sql=self.expressions.sql(expression, row),
            delay_micros=self._delay_micros(expression, column.name),
        )

    def _without_clause(self, named: Named | None, marked: Named | None) -> WatermarkSpec | None:
        if named is not None:
            column: Column | None = self._timestamp(named.name, named.node)
        else:
            known = {each.name.lower(): each for each in self.columns}
            column = known.get(self.default.lower()) if self.default else None
        if marked is not None:
            if column is None:
                raise self.script.error(
                    marked.node,
                    "a watermark needs event time, and the table has none",
                    f"name a TIMESTAMP column, as in {EVENT_TIME_FIELD} = 'at'",
                )
            mark = self._timestamp(marked.name, marked.node)
            delay = 0 if mark == column else None
            return WatermarkSpec(event_time=column.name, sql=_column_sql(mark), delay_micros=delay)
        if column is None:
            return None
        return WatermarkSpec(
            event_time=column.name,
            sql=f"{_column_sql(column)} - INTERVAL '1' SECOND",
            delay_micros=_DEFAULT_DELAY_MICROS,
        )

    def _timestamp(self, name: str, node: exp.Expr) -> Column:
        known = {each.name.lower(): each for each in self.columns}
        column = known.get(name.lower())
        if column is None:
            hint = did_you_mean(name, [each.name for each in self.columns])
            raise self.script.error(node, f"there is no column '{name}'", hint)
        if is_processing_time(column):
            message = f"'{column.name}' is processing time, which needs no watermark"
            hint = "leave the watermark out: windows of a table without one use processing time"
            raise self.script.error(node, message, hint)
        # Spark tells the type of a computed column; the engine checks that it is a TIMESTAMP.
        if column.type not in ("TIMESTAMP", ""):
            message = (
                f"event time must be a TIMESTAMP, and '{column.name}' is of type {column.type}"
            )
            raise self.script.error(
                node,
                message,
                "declare the column as TIMESTAMP, or compute one with GENERATED ALWAYS AS",
            )
        return column

    def _delay_micros(self, expression: exp.Expr, event_time: str) -> int | None:
        """How far an expression stays behind event time, if it is of that form."""
        expression = expression.unnest()
        is_late = isinstance(expression, exp.Sub)
        column = expression.this.unnest() if is_late else expression
        if not isinstance(column, exp.Column) or column.name.lower() != event_time.lower():
            return None
        try:
            return interval_micros(expression.expression, self.script) if is_late else 0
        except SqlError:
            return None


def _with_interval(expression: exp.Expr) -> exp.Expr:
    """A text that is taken from a column is meant as an interval."""
    expression = expression.copy()
    inner = expression.unnest()
    if isinstance(inner, exp.Sub | exp.Add):
        text = inner.expression
        if isinstance(text, exp.Literal) and text.is_string:
            inner.set("expression", exp.Interval(this=text.copy()))
    return expression


def _column_sql(column: Column) -> str:
    return column_sql(Attribute(column.name, column.name))
