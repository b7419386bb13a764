"""Compilation of an aggregated SELECT: an aggregate, then a query that computes the select list.

The select list and HAVING are rewritten over the aggregate's output: an expression that equals a
key becomes that key's column, a tumble() call the window, an aggregate call its result. A column
that remains is neither grouped nor aggregated. Functions with OVER are computed last, after HAVING.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.specs.updating_query import UpdatingInput
from resurgence.graph.values import EVENT_TIME, Expression, Position
from resurgence.ids import OperatorId
from resurgence.sql.catalog.relation import (
    WINDOW_TYPE,
    Attribute,
    Relation,
    RowKind,
    WindowPart,
    reference,
)
from resurgence.sql.functions.aggregate_sql import in_event_time_order, spark_sql
from resurgence.sql.functions.registry import Call
from resurgence.sql.planner.expressions import Expressions, belongs_to_over
from resurgence.sql.planner.grouping.aggregate_reader import AggregateReader, unwrapped
from resurgence.sql.planner.grouping.grouping import (
    Grouping,
    calls,
    grouping_value,
    is_grouping_call,
    read_grouping,
)
from resurgence.sql.planner.operators import Operators
from resurgence.sql.planner.projection import (
    Item,
    column_and_window,
    filtered,
    hidden_columns,
    named_items,
)
from resurgence.sql.planner.windows.window_call import (
    WINDOW,
    check_input,
    is_window_call,
    window_call,
    window_name,
)
from resurgence.sql.planner.windows.window_functions import WindowFunctions, has_window_functions
from resurgence.sql.syntax.dialect import to_spark


@dataclass
class Aggregation:
    """Compiles one aggregated query over its filtered input."""

    select: exp.Select
    source: Relation
    expressions: Expressions
    operators: Operators
    _calls: dict[AggregateCall, AggregateCall] = field(default_factory=dict)
    """Each distinct call, keyed by the call without name and position."""
    _input: Relation = field(init=False)
    """The input before grouping sets multiply its rows."""

    def __post_init__(self) -> None:
        self._input = self.source

    def compile(self) -> Relation:
        self._refuse_stars()
        grouping = read_grouping(self.select, self.source, self.expressions)
        if grouping.sets is not None:
            self.source = grouping.sets.multiplied(self.source, self.operators)
        values = [self.expressions.with_over(each.unalias()) for each in self.select.expressions]
        rewritten = [self._rewritten(each, grouping) for each in values]
        having = self._having(grouping)
        output = self._aggregate(grouping)
        where = self._filter(having, output)
        items = [
            self._item(node, value, output, grouping)
            for node, value in zip(self.select.expressions, rewritten, strict=True)
        ]
        if has_window_functions(self.select):
            over = exp.Select(expressions=rewritten)
            over.meta["start"] = self.expressions.script.offset(self.select)
            groups = filtered(output, where, self.operators)
            return WindowFunctions(over, groups, self.expressions, self.operators).over(items)
        chosen = named_items(items)
        operator = self.operators.query(
            output.operator,
            (*(expression for _, expression in chosen), *hidden_columns(output)),
            where,
        )
        return replace(output, operator=operator, attributes=tuple(each for each, _ in chosen))

    # ---------------------------------------------------------------- the operator

    def _aggregate(self, grouping: Grouping) -> Relation:
        """Return the output of the aggregate: the window if there is one, the keys, the calls."""
        keys = tuple(
            Attribute(
                each.name, each.name, WINDOW_TYPE if part is WindowPart.WHOLE else None, window=part
            )
            for each in grouping.keys
            for part in [self.source.window_part(each.sql)]
        )
        results = tuple(Attribute(each.name, each.name) for each in self._calls.values())
        if grouping.window is not None:
            return self._over_window(grouping, keys, results)
        if self.source.kind is RowKind.CLOSED and any(map(self.source.identifies_window, keys)):
            operator = self.operators.closed_query(
                (self.source.operator,), self._closed_sql(grouping), self._position()
            )
            return replace(self.source, operator=operator, attributes=(*keys, *results), either=())
        return Relation(
            operator=self._updating(grouping),
            attributes=(*keys, *results),
            has_event_time=False,
            kind=RowKind.UPDATING,
        )

    def _over_window(
        self, grouping: Grouping, keys: tuple[Attribute, ...], results: tuple[Attribute, ...]
    ) -> Relation:
        made = grouping.window
        assert made is not None
        place = self.select.args.get("group") or self.select
        check_input(self.source, made.kind, place, self.expressions.script)
        operator = self.operators.window_aggregate(
            self.source.operator, made, grouping.keys, self._stored_calls(grouping)
        )
        # With processing time no row is late.
        if self.source.kind is RowKind.APPENDED and not made.by_processing_time:
            self.operators.windows.append((operator, self._input))
        window = Attribute(WINDOW, WINDOW, WINDOW_TYPE, window=WindowPart.WHOLE)
        # The keys no longer identify windows of the input.
        plain = tuple(replace(each, window=None) for each in keys)
        return Relation(
            operator=operator,
            attributes=(window, *plain, *results),
            has_event_time=True,
            kind=RowKind.CLOSED,
            width_micros=made.common_width_micros,
        )

    def _stored_calls(self, grouping: Grouping) -> tuple[AggregateCall, ...]:
        """Return the calls that a window stores for each group: a count if the query has none."""
        count = AggregateCall(name=self._unused_name("count", grouping), function="count")
        return tuple(self._calls.values()) or (count,)

    def _closed_sql(self, grouping: Grouping) -> str:
        """Return the aggregate as Spark batch SQL over the rows of closed windows."""
        results = [
            *(f"{each.sql} AS `{each.name}`" for each in grouping.keys),
            *(
                f"{spark_sql(in_event_time_order(each))} AS `{each.name}`"
                for each in self._calls.values()
            ),
            f"max(`{EVENT_TIME}`) AS `{EVENT_TIME}`",
        ]
        groups = ", ".join(each.sql for each in grouping.keys)
        return f"SELECT {', '.join(results)} FROM {{input_0}} GROUP BY {groups}"

    def _updating(self, grouping: Grouping) -> OperatorId:
        """Add an aggregate whose groups are never complete: it stores the columns that its calls
        read, by key.
        """
        columns = list(grouping.keys)
        calls_over: list[AggregateCall] = []
        for each in self._calls.values():
            call = in_event_time_order(each) if self.source.has_event_time else each
            read_columns, over = _over_columns(call)
            columns += read_columns
            calls_over.append(over)
        keys = [f"`{each.name}`" for each in grouping.keys]
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        stored = UpdatingInput(
            operator=self.source.operator,
            columns=tuple(columns),
            keys=tuple(each.name for each in grouping.keys),
            is_updating=self.source.kind is RowKind.UPDATING,
        )
        results = [f"{spark_sql(each)} AS `{each.name}`" for each in calls_over]
        sql = f"SELECT {', '.join([*keys, *results])} FROM {{input_0}}{group}"
        return self.operators.updating_query(
            (stored,), sql, self._position(), aggregates=tuple(calls_over)
        )

    def _position(self) -> Position:
        return self.expressions.script.position(self.select.args.get("group") or self.select)

    # ---------------------------------------------------------------- the select list

    def _refuse_stars(self) -> None:
        for each in self.select.expressions:
            if each.is_star:
                message = "'*' is not allowed in the select list of an aggregated query"
                raise self.expressions.script.error(each, message, "Name the grouped columns.")

    def _rewritten(self, node: exp.Expr, grouping: Grouping, in_having: bool = False) -> exp.Expr:
        """Return a copy of the expression over the aggregate's output."""
        script = self.expressions.script
        keys = grouping.key_names

        def step(each: exp.Expr) -> exp.Expr:
            if belongs_to_over(each):
                return each
            if is_window_call(each, self.expressions):
                if window_call(each, self._input, self.expressions) != grouping.window:
                    message = "the window differs from the window of GROUP BY"
                    raise script.error(each, message, "Write the same call in both places.")
                return _column(WINDOW, each)
            if grouping.sets is not None and is_grouping_call(each, self.expressions):
                return grouping_value(
                    each, grouping.sets, self.select, self.source, self.expressions
                )
            if self._is_aggregate(each):
                return _column(self._call(each, grouping).name, each)
            self.expressions.check(each)
            if isinstance(each, exp.Column):
                return self._rewritten_column(each, grouping, keys, in_having)
            if isinstance(each, exp.Condition) and self._is_of_input(each):
                sql = self.expressions.sql(each, self.source)
                if sql in keys:
                    return _column(keys[sql], each)
            if isinstance(each, exp.Anonymous):
                self.expressions.name_all_fields(each)
            return each

        return node.transform(step, copy=True)

    def _is_of_input(self, node: exp.Expr) -> bool:
        """Return whether the expression reads only the input, so that it can equal a key."""
        return not calls(node, self.expressions) and all(
            self.source.find(each.parts[0].name)
            or (len(each.parts) > 1 and self.source.is_called(each.parts[0].name))
            for each in node.find_all(exp.Column)
        )

    def _rewritten_column(
        self, node: exp.Column, grouping: Grouping, keys: Mapping[str, str], in_having: bool
    ) -> exp.Expr:
        script = self.expressions.script
        first = node.parts[0].name.lower()
        if first in grouping.window_names:
            if len(node.parts) == 1:
                return _column(WINDOW, node)
            made = Attribute(first, WINDOW, WINDOW_TYPE)
            window = Relation(self.source.operator, (made,), has_event_time=False)
            attribute, path = window.resolve(node, script)
            return reference(attribute, path)
        grouped = any(to_spark(reference(each)) in keys for each in self.source.find(first))
        if in_having and len(node.parts) == 1 and not grouped:
            for each in self.select.expressions:
                if isinstance(each, exp.Alias) and each.alias.lower() == first:
                    return exp.Paren(this=self._rewritten(each.this, grouping))
        attribute, path = self.source.resolve(node, script)
        whole, part = to_spark(reference(attribute)), to_spark(reference(attribute, path))
        if part in keys:
            return _column(keys[part], node)
        if whole in keys:
            return reference(Attribute(attribute.name, keys[whole]), path)
        message = f"column '{node.name}' is neither grouped nor aggregated"
        raise script.error(
            node, message, f"Add '{node.name}' to GROUP BY, or use it in an aggregate function."
        )

    def _is_aggregate(self, node: exp.Expr) -> bool:
        return self.expressions.call_kind(unwrapped(node)) is Call.AGGREGATE

    def _call(self, node: exp.Expr, grouping: Grouping) -> AggregateCall:
        """Return the aggregate call; equal calls share one."""
        read = AggregateReader(self.expressions, self.source).read(node)
        if read not in self._calls:
            self._calls[read] = read.model_copy(
                update={
                    "name": self._unused_name(read.name, grouping),
                    "position": self.expressions.script.position(node),
                }
            )
        return self._calls[read]

    def _unused_name(self, function: str, grouping: Grouping) -> str:
        name = f"{function}_{len(self._calls) + 1}"
        taken = [each.name.lower() for each in grouping.keys]
        # The columns that a call reads are stored under its name and a number.
        while any(each == name.lower() or each.startswith(f"{name.lower()}_") for each in taken):
            name = f"{name}_"
        return name

    def _having(self, grouping: Grouping) -> exp.Expr | None:
        having = self.select.args.get("having")
        return self._rewritten(having.this, grouping, in_having=True) if having else None

    def _filter(self, having: exp.Expr | None, output: Relation) -> Expression | None:
        if having is None:
            return None
        position = self.expressions.script.position(self.select.args["having"].this)
        return Expression(
            name="having", sql=self.expressions.sql(having, output), position=position
        )

    def _item(
        self, node: exp.Expr, rewritten: exp.Expr, output: Relation, grouping: Grouping
    ) -> Item:
        bound = self.expressions.bound(rewritten, output)
        attribute, part = column_and_window(bound, output)
        return Item(
            name=self.expressions.alias(node) or self._name(node, grouping),
            bound=bound,
            type=attribute.type if attribute else None,
            position=self.expressions.script.position(node),
            window=part,
            is_unnamed_window=is_window_call(node, self.expressions),
        )

    def _name(self, node: exp.Expr, grouping: Grouping) -> str | None:
        """Return the name of an item without alias: that of the column or of the function."""
        if isinstance(node, exp.Column):
            if node.parts[0].name.lower() in grouping.window_names:
                return node.name
            attribute, path = self.source.resolve(node, self.expressions.script)
            return path[-1] if path else attribute.name
        call = node.this if isinstance(node, exp.Filter) else node
        if is_window_call(call, self.expressions):
            return window_name(call)
        return (
            self.expressions.functions.spelling(call.name)
            if isinstance(call, exp.Anonymous)
            else None
        )


def _over_columns(call: AggregateCall) -> tuple[tuple[Expression, ...], AggregateCall]:
    """Return the columns that a call reads, and the call over them. An expression without columns
    stays in the call, because some arguments must be constants.
    """
    columns: dict[str, Expression] = {}

    def column(sql: str) -> str:
        if "`" not in sql:
            return sql
        # Equal expressions share a column: with DISTINCT, Spark must see that they are the same.
        if sql not in columns:
            name = f"{call.name}_{len(columns)}"
            columns[sql] = Expression(name=name, sql=sql, position=call.position)
        return f"`{columns[sql].name}`"

    over = call.over(column)
    return tuple(columns.values()), over


def _column(name: str, replaced: exp.Expr) -> exp.Expr:
    column = exp.Column(this=exp.to_identifier(name, quoted=True))
    if "start" in replaced.meta:
        column.meta["start"] = replaced.meta["start"]
    return column
