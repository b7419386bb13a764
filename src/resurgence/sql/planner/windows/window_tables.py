"""Flink's windowing table functions, as in `TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' HOUR))`.

Such a function returns each row of a table once per window that contains it, with the columns
window_start, window_end and window_time. A query that only groups by them is rewritten to read the
table itself and to group by tumble(), hop(), cumulate() or session(): it is the same operator, and
stores partial aggregates. For any other query (joins and ranks by window, plain rows) a window
aggregate stores the rows of each window, and emits them when the window closes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.specs.window_aggregate import WINDOW_KINDS
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.sql.catalog.relation import Attribute, Relation, RowKind, WindowPart, column_sql
from resurgence.sql.functions.registry import Call
from resurgence.sql.functions.spark_template import call, placed
from resurgence.sql.planner.expressions import Expressions
from resurgence.sql.planner.grouping.grouping import is_grouping_call
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import hidden_columns
from resurgence.sql.planner.windows.foreign_windows import window_part
from resurgence.sql.planner.windows.window_call import NAMED, check_input, window_call, window_kind
from resurgence.sql.syntax.flink_syntax import WINDOW_PARAMETERS, PartitionedTable, WindowTable

_PARTS = {
    "window_start": (WindowPart.START, "`window`.`start`"),
    "window_end": (WindowPart.END, "`window`.`end`"),
    "window_time": (WindowPart.TIME, "`window`.`end` - INTERVAL '1' MILLISECOND"),
}
"""The window columns: the part of the window that each identifies, and its value."""
_EXAMPLE = "Write it as in TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' MINUTES))."
_INPUT = "__window_input"
_WINDOW = "__window"
_SLICES = 64
"""The number of groups that hold the rows of a window, spread over the subtasks."""


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a function: its input, and the equivalent window call."""

    data: exp.Expr
    partition_by: tuple[exp.Expr, ...]
    window: exp.Anonymous


@dataclass(frozen=True)
class WindowTables:
    """Compiles windowing table functions."""

    expressions: Expressions
    operators: Operators

    def data(self, node: WindowTable) -> exp.Expr:
        """Return the input of a function: a table or a subquery."""
        return self._arguments(node).data

    def rows(self, node: WindowTable, source: Relation, read: frozenset[str] | None) -> Relation:
        """Return the rows of each closed window, with the columns in `read`, or all if None."""
        arguments = self._arguments(node)
        for name in _PARTS:
            if source.find(name):
                message = f"the table already has a column '{name}'"
                raise self._error(node, message, "Rename the column in a view or a subquery.")
        window = window_call(arguments.window, source, self.expressions)
        check_input(source, window.kind, node, self.expressions.script)
        keys = tuple(
            Expression(name=f"key_{number}", sql=self.expressions.sql(each, source))
            for number, each in enumerate(arguments.partition_by)
        )
        if not WINDOW_KINDS[window.kind].is_made_by_rows:
            keys = (Expression(name="slice", sql=f"pmod(hash(`{EVENT_TIME}`), {_SLICES})"),)
        stored = source.named(node.alias or None).only(read).attributes
        fields = ", ".join(f"{column_sql(each)} AS `{each.column}`" for each in stored)
        collected = AggregateCall(
            name="rows",
            function="collect_list",
            arguments=(f"struct({fields})" if stored else "struct(1)",),
            position=self.expressions.script.position(node),
        )
        operator = self.operators.window_aggregate(source.operator, window, keys, (collected,))
        if source.kind is RowKind.APPENDED and not window.by_processing_time:
            self.operators.windows.append((operator, source))
        closed = Relation(operator, (), has_event_time=True, kind=RowKind.CLOSED)
        unnested = (Expression(name="row", sql="explode(`rows`)"), _column("window"))
        one_by_one = self.operators.query(operator, (*unnested, *hidden_columns(closed)))
        values = [
            *(Expression(name=each.column, sql=f"`row`.`{each.column}`") for each in stored),
            *(Expression(name=name, sql=sql) for name, (_, sql) in _PARTS.items()),
        ]
        attributes = [
            *(
                replace(each, window=None, outer_window=None, is_event_time=False)
                for each in stored
            ),
            *(
                Attribute(name, name, "TIMESTAMP", node.alias or None, part)
                for name, (part, _) in _PARTS.items()
            ),
        ]
        return replace(
            closed,
            operator=self.operators.query(one_by_one, (*values, *hidden_columns(closed))),
            attributes=tuple(attributes),
            width_micros=window.common_width_micros,
        )

    def grouped(self, select: exp.Select) -> exp.Select:
        """Rewrite the query to read the table itself if it only groups by the windows of a function
        in FROM; otherwise return it unchanged. Its joins must preserve event time.
        """
        clause = select.args.get("from_")
        table = clause.this if clause else None
        group = select.args.get("group")
        if not isinstance(table, WindowTable) or group is None:
            return select
        alias = table.alias.lower()
        listed = select.expressions
        items = [
            listed[int(each.name) - 1].unalias()
            if each.is_int and 1 <= int(each.name) <= len(listed)
            else each
            for each in group.expressions
        ]
        beside = [each for each in items if not _is_part(each, alias)]
        ends = [each for each in items if _is_part(each, alias) and each.name != "window_time"]
        arguments = self._arguments(table)
        if (
            not ends
            or not self._only_groups(select, alias)
            or not _same_sessions(arguments, beside)
        ):
            return select
        # A reserved name, so that it cannot be confused with a column named `window`.
        arguments.window.meta[NAMED] = _WINDOW
        name = table.alias or (
            arguments.data.name if isinstance(arguments.data, exp.Table) else _INPUT
        )
        time = arguments.window.expressions[0]
        time.set("table", exp.to_identifier(name))
        rewritten = select.copy()
        data = arguments.data.copy()
        data.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
        rewritten.args["from_"].set("this", data)
        columns = [each.copy() for each in beside]
        rewritten.args["group"].set("expressions", [arguments.window.copy(), *columns])
        for column in list(rewritten.find_all(exp.Column)):
            if _is_part(column, alias) and not column.find_ancestor(exp.From):
                part = column.name.lower().removeprefix("window_")
                native = window_part(arguments.window.copy(), part, column)
                if column.parent is rewritten:
                    native = placed(exp.alias_(native, column.name, copy=False), column)
                column.replace(native)
        return rewritten

    def _only_groups(self, select: exp.Select, alias: str) -> bool:
        """Return whether window columns are used only after grouping, and in no aggregate."""
        for column in select.find_all(exp.Column):
            node: exp.Expr = column
            if not _is_part(column, alias) or column.find_ancestor(exp.From):
                continue
            while node.parent is not None and node.parent is not select:
                node = node.parent
                is_over = isinstance(node.parent, exp.Window)
                is_call = self.expressions.call_kind(node) is Call.AGGREGATE and not is_over
                if is_call and not is_grouping_call(node, self.expressions):
                    return False
            direct = node.arg_key == "group" and column.parent is node
            if not direct and node.arg_key not in ("expressions", "having", "qualify"):
                return False
        return True

    def _arguments(self, node: WindowTable) -> _Arguments:
        function, known = node.name, WINDOW_PARAMETERS[node.name]
        passed: dict[str, exp.Expr] = {}
        for each in node.expressions:
            name = each.this.name if each.this else ""
            if name not in known:
                message = f"{function} has no argument {name}"
                message = message if name else f"{function} has too many arguments"
                raise self._error(each, message, f"Use the arguments {', '.join(known)}.")
            if name in passed:
                raise self._error(each, f"{name} is specified twice", "Remove one of them.")
            passed[name] = each.expression
        for name in known:
            if name not in passed and name != "OFFSET":
                raise self._error(node, f"{function} requires the argument {name}", _EXAMPLE)
        data, time = passed["DATA"], passed["TIMECOL"]
        is_descriptor = isinstance(time, exp.Anonymous) and time.name.upper() == "DESCRIPTOR"
        if not is_descriptor or len(time.expressions) != 1:
            message = f"{function} requires the event time as DESCRIPTOR(column)"
            raise self._error(time, message, _EXAMPLE)
        if not isinstance(data, PartitionedTable | exp.Subquery):
            raise self._error(data, f"{function} requires a table", _EXAMPLE)
        partition_by = data.args.get("partition_by") or []
        spans = [passed[each] for each in known[2:] if each in passed]
        return _Arguments(
            data=data.this if isinstance(data, PartitionedTable) else data,
            partition_by=tuple(partition_by),
            window=call(
                function.lower(), node, *(each.copy() for each in (*time.expressions, *spans))
            ),
        )

    def _error(self, node: exp.Expr, message: str, hint: str) -> SqlError:
        return self.expressions.script.error(node, message, hint)


def _is_part(node: exp.Expr, alias: str) -> bool:
    """Return whether a node is a window column of a function with this alias."""
    if not isinstance(node, exp.Column) or node.name.lower() not in _PARTS:
        return False
    return len(node.parts) == 1 or (len(node.parts) == 2 and node.table.lower() == alias)


def _same_sessions(arguments: _Arguments, beside: list[exp.Expr]) -> bool:
    """Return whether the groups of a query form the same sessions as the function."""
    if not WINDOW_KINDS[window_kind(arguments.window)].is_made_by_rows:
        return True
    keys = {each.name.lower() for each in arguments.partition_by}
    plain = all(isinstance(each, exp.Column) and len(each.parts) <= 2 for each in beside)
    return plain and {each.name.lower() for each in beside} == keys


def _column(name: str) -> Expression:
    return Expression(name=name, sql=f"`{name}`")
