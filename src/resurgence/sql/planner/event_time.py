"""Event time and watermark of a source, defined by a WATERMARK clause, by options or by the
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
    """Chooses the event time column of a source and its watermark."""

    columns: tuple[Column, ...]
    default: str | None
    """The event time column if the user names none and the table has this column."""
    expressions: Expressions

    @property
    def script(self) -> Script:
        return self.expressions.script

    def watermark(
        self, clauses: Sequence[exp.WatermarkColumnConstraint], options: Mapping[str, Named]
    ) -> WatermarkSpec | None:
        """Return the watermark, or None if the source has no event time. `options` holds the two
        field options.
        """
        named, marked = options.get(EVENT_TIME_FIELD), options.get(WATERMARK_FIELD)
        if len(clauses) > 1:
            message = "a table can have only one WATERMARK"
            raise self.script.error(clauses[1], message, "Remove one of them.")
        if not clauses:
            return self._without_clause(named, marked)
        clause = clauses[0]
        column = self._timestamp(clause.this.name, clause.this)
        if marked is not None:
            raise self.script.error(
                marked.node,
                f"both the WATERMARK clause and {WATERMARK_FIELD} define the watermark",
                "Remove one of them.",
            )
        if named is not None and named.name.lower() != column.name.lower():
            raise self.script.error(
                named.node,
                f"the WATERMARK clause names '{column.name}' as event time, but"
                f" {EVENT_TIME_FIELD} names '{named.name}'",
                "Remove one of them.",
            )
        for each in clause.expression.find_all(PlanningTime):
            message = f"a watermark cannot be computed from {each.name}()"
            hint = "Remove WATERMARK: windows then use processing time."
            raise self.script.error(each, message, hint)
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
                    "a watermark requires event time, but the table has none",
                    f"Name a TIMESTAMP column, as in {EVENT_TIME_FIELD} = 'at'.",
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
            message = f"'{column.name}' is processing time and cannot have a watermark"
            hint = "Remove the watermark: windows of a table without one use processing time."
            raise self.script.error(node, message, hint)
        # Spark derives the type of a computed column; the engine checks that it is a TIMESTAMP.
        if column.type not in ("TIMESTAMP", ""):
            message = (
                f"event time must be a TIMESTAMP, but '{column.name}' is of type {column.type}"
            )
            hint = "Declare the column as TIMESTAMP, or compute one with GENERATED ALWAYS AS."
            raise self.script.error(node, message, hint)
        return column

    def _delay_micros(self, expression: exp.Expr, event_time: str) -> int | None:
        """Return the delay if an expression is event time minus an interval, else None."""
        expression = expression.unnest()
        is_delayed = isinstance(expression, exp.Sub)
        column = expression.this.unnest() if is_delayed else expression
        if not isinstance(column, exp.Column) or column.name.lower() != event_time.lower():
            return None
        try:
            return interval_micros(expression.expression, self.script) if is_delayed else 0
        except SqlError:
            return None


def _with_interval(expression: exp.Expr) -> exp.Expr:
    """Read a string that is added to or subtracted from a column as an interval."""
    expression = expression.copy()
    inner = expression.unnest()
    if isinstance(inner, exp.Sub | exp.Add):
        text = inner.expression
        if isinstance(text, exp.Literal) and text.is_string:
            inner.set("expression", exp.Interval(this=text.copy()))
    return expression


def _column_sql(column: Column) -> str:
    return column_sql(Attribute(column.name, column.name))
