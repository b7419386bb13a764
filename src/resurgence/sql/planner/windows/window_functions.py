"""Functions with OVER, and DISTINCT: queries that need all rows of a group at once.

Over rows of closed windows, grouped by the window, this is a batch query over the rows of an epoch.
Over any other rows the query stores them keyed by the columns of PARTITION BY (or by all columns,
for DISTINCT), and produces a changelog.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.specs.updating_query import UpdatingInput
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.sql.catalog.relation import Attribute, Relation, RowKind, column_sql
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import Item, column_and_window, named_items
from resurgence.sql.planner.windows.first_rows import numbering
from resurgence.sql.syntax.dialect import to_spark

_KEY = "partition_"


def has_window_functions(select: exp.Select) -> bool:
    """Return whether a select list has functions with OVER."""
    return any(each.find(exp.Window) for each in select.expressions)


@dataclass(frozen=True)
class WindowFunctions:
    """Compiles a select list over a filtered input."""

    select: exp.Query
    source: Relation
    expressions: Expressions
    operators: Operators

    def over(self, items: list[Item]) -> Relation:
        """Compile a select list with functions with OVER."""
        groups = self._partitions()
        chosen = named_items(items)
        attributes = tuple(attribute for attribute, _ in chosen)
        results = [f"{each.sql} AS `{each.name}`" for _, each in chosen]
        if self._is_closed(groups):
            return self._closed(f"SELECT {', '.join([*results, f'`{EVENT_TIME}`'])}", attributes)
        shared = [
            each for each in groups[0] if all(to_spark(each) in _texts(others) for others in groups)
        ]
        if not shared:
            message = (
                "a function with OVER requires PARTITION BY: otherwise its state holds every row"
            )
            window = self.select.find(exp.Window)
            hint = "Add PARTITION BY with a key or with a window."
            raise self._error(window or self.select, message, hint)
        prefix = _KEY
        while any(each.column.lower().startswith(prefix) for each in self.source.attributes):
            prefix = f"{prefix}_"
        keys = [
            Expression(name=f"{prefix}{number}", sql=to_spark(each))
            for number, each in enumerate(shared)
        ]
        relation = self._updating(f"SELECT {', '.join(results)}", keys, attributes)
        numbered = numbering(
            items,
            [each.name for _, each in chosen],
            keys,
            self.source.operator,
            self.expressions.script.position(self.select),
            is_updating=self.source.kind is RowKind.UPDATING,
            is_user_defined=self.expressions.functions.is_user_defined,
        )
        if numbered is not None:
            self.operators.numberings[relation.operator] = numbered
        return relation

    def distinct(self, items: list[Item]) -> Relation:
        """Compile SELECT DISTINCT."""
        chosen = named_items(items)
        attributes = tuple(attribute for attribute, _ in chosen)
        results = [f"{each.sql} AS `{each.name}`" for _, each in chosen]
        if self.source.kind is RowKind.CLOSED and any(
            self.source.identifies_window(each) for each in attributes
        ):
            sql = f"SELECT DISTINCT {', '.join([*results, f'`{EVENT_TIME}`'])}"
            return self._closed(sql, attributes)
        return self._grouped([each for _, each in chosen], attributes)

    def _grouped(self, columns: list[Expression], attributes: tuple[Attribute, ...]) -> Relation:
        """Return each distinct row once over all epochs. The result of an append-only input is
        append-only: the first of equal rows. If event time is among the columns, state expires with
        the watermark.
        """
        time = next((each for each in attributes if each.is_event_time), None)
        names = ", ".join(f"`{each.name}`" for each in columns)
        stored = UpdatingInput(
            operator=self.source.operator,
            columns=tuple(columns),
            keys=tuple(each.name for each in columns),
            is_updating=self.source.kind is RowKind.UPDATING,
        )
        operator = self.operators.updating_query(
            (stored,),
            f"SELECT {names} FROM {{input_0}} GROUP BY {names}",
            self.expressions.script.position(self.select),
            keep_micros=None if time is None else 0,
            aggregates=(),
        )
        shown = tuple(replace(each, window=None) for each in attributes)
        if self.source.kind is RowKind.UPDATING:
            return Relation(operator, shown, has_event_time=False, kind=RowKind.UPDATING)
        select = [Expression(name=each.name, sql=f"`{each.name}`") for each in columns]
        if time is not None:
            select.append(Expression(name=EVENT_TIME, sql=column_sql(time)))
        return Relation(
            self.operators.query(operator, tuple(select)), shown, has_event_time=time is not None
        )

    # ---------------------------------------------------------------- closed and updating

    def _closed(self, sql: str, attributes: tuple[Attribute, ...]) -> Relation:
        operator = self.operators.closed_query(
            (self.source.operator,),
            f"{sql} FROM {{input_0}}",
            self.expressions.script.position(self.select),
        )
        return replace(self.source, operator=operator, attributes=attributes, either=())

    def _updating(
        self, sql: str, keys: list[Expression], attributes: tuple[Attribute, ...]
    ) -> Relation:
        stored = UpdatingInput(
            operator=self.source.operator,
            columns=(
                *(
                    Expression(name=each.column, sql=column_sql(each))
                    for each in self.source.attributes
                ),
                *keys,
            ),
            keys=tuple(each.name for each in keys),
            is_updating=self.source.kind is RowKind.UPDATING,
        )
        operator = self.operators.updating_query(
            (stored,), f"{sql} FROM {{input_0}}", self.expressions.script.position(self.select)
        )
        return Relation(
            operator,
            tuple(replace(each, window=None) for each in attributes),
            has_event_time=False,
            kind=RowKind.UPDATING,
        )

    # ---------------------------------------------------------------- PARTITION BY

    def _partitions(self) -> list[list[exp.Expr]]:
        """Return the bound PARTITION BY expressions of each function."""
        windows = [
            window for each in self.select.expressions for window in each.find_all(exp.Window)
        ]
        return [
            [
                self.expressions.bound(each, self.source)
                for each in window.args.get("partition_by") or []
            ]
            for window in windows
        ]

    def _is_closed(self, groups: list[list[exp.Expr]]) -> bool:
        """Return whether every function is partitioned by the window."""
        if self.source.kind is not RowKind.CLOSED:
            return False
        return all(any(self._identifies_window(each) for each in group) for group in groups)

    def _identifies_window(self, bound: exp.Expr) -> bool:
        _, part = column_and_window(bound, self.source)
        return self.source.identifies_window(Attribute("", "", window=part))

    def _error(self, node: exp.Expr, message: str, hint: str) -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _texts(nodes: list[exp.Expr]) -> set[str]:
    return {to_spark(each) for each in nodes}
