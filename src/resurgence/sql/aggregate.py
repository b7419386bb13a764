"""An aggregated SELECT: a window aggregate, then a query that makes the select list of its output.

The select list and HAVING are rewritten over the aggregate's output: what equals a key becomes that
key's column, a tumble() call the window, an aggregate call its result. A column that is left over
is neither grouped nor aggregated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from resurgence.graph.model import AggregateCall, Expression
from resurgence.sql.dialect import to_spark
from resurgence.sql.expressions import Expressions
from resurgence.sql.functions import Call
from resurgence.sql.grouping import WINDOW, Grouping, calls, read_grouping, tumble_micros
from resurgence.sql.operators import Operators
from resurgence.sql.projection import Item, named_items
from resurgence.sql.relation import Attribute, Relation, reference

WINDOW_TYPE = "STRUCT<`start`: TIMESTAMP, `end`: TIMESTAMP>"


@dataclass
class Aggregation:
    """Compiles one aggregated query over its filtered input."""

    select: exp.Select
    source: Relation
    expressions: Expressions
    operators: Operators
    _calls: dict[tuple[str, tuple[str, ...], str | None], AggregateCall] = field(
        default_factory=dict
    )

    def compile(self) -> Relation:
        self._refuse_stars()
        grouping = self._grouping()
        values = [each.unalias() for each in self.select.expressions]
        rewritten = [self._rewritten(each, grouping) for each in values]
        having = self._having(grouping)
        aggregate = self.operators.window_aggregate(
            self.source.operator, grouping.width_micros, grouping.keys, tuple(self._calls.values())
        )
        names = [
            WINDOW,
            *(each.name for each in grouping.keys),
            *(each.name for each in self._calls.values()),
        ]
        types = {WINDOW: WINDOW_TYPE}
        output = Relation(
            operator=aggregate,
            attributes=tuple(Attribute(each, each, types.get(each)) for each in names),
            has_event_time=False,
            is_aggregated=True,
        )
        items = [
            self._item(node, value, output, grouping)
            for node, value in zip(self.select.expressions, rewritten, strict=True)
        ]
        chosen = named_items(items)
        operator = self.operators.query(
            aggregate,
            tuple(expression for _, expression in chosen),
            self._filter(having, output),
        )
        return Relation(
            operator, tuple(each for each, _ in chosen), has_event_time=False, is_aggregated=True
        )

    def _grouping(self) -> Grouping:
        script = self.expressions.script
        place = self.select.args.get("group") or self.select
        if self.source.is_aggregated:
            message = "an aggregate over an aggregate is not supported yet: windows have no event time of their own"
            raise script.error(
                place, message, "write the inner result to a sink and read it from there"
            )
        grouping = read_grouping(self.select, self.source, self.expressions)
        if not self.source.has_event_time:
            message = "tumble() needs event time, and the table read here has none"
            hint = "add WATERMARK FOR column AS column - INTERVAL '5 seconds' to its CREATE TABLE"
            raise script.error(place, message, hint)
        return grouping

    def _refuse_stars(self) -> None:
        for each in self.select.expressions:
            if each.is_star:
                message = "'*' cannot stand in the select list of an aggregated query"
                raise self.expressions.script.error(each, message, "name the grouped columns")

    def _rewritten(self, node: exp.Expr, grouping: Grouping, in_having: bool = False) -> exp.Expr:
        """A copy of the expression over the window aggregate's output."""
        script = self.expressions.script
        keys = {key.sql: key.name for key in grouping.keys}

        def step(each: exp.Expr) -> exp.Expr:
            if self.expressions.call_kind(each) is Call.TUMBLE:
                if tumble_micros(each, self.expressions) != grouping.width_micros:
                    raise script.error(
                        each, "this is not the window of GROUP BY", "use the same width"
                    )
                return _column(WINDOW, each)
            if self._is_aggregate(each):
                return _column(self._call(each, grouping).name, each)
            self.expressions.check(each)
            if isinstance(each, exp.Column):
                return self._rewritten_column(each, grouping, keys, in_having)
            if isinstance(each, exp.Condition) and self._is_of_input(each):
                sql = self.expressions.sql(each, self.source)
                return _column(keys[sql], each) if sql in keys else each
            return each

        return node.transform(step, copy=True)

    def _is_of_input(self, node: exp.Expr) -> bool:
        """Whether the expression is one over the input, so that it may equal a key."""
        firsts = [each.parts[0].name for each in node.find_all(exp.Column)]
        return not calls(node, self.expressions) and all(
            self.source.find(each) or self.source.is_called(each) for each in firsts
        )

    def _rewritten_column(
        self, node: exp.Column, grouping: Grouping, keys: dict[str, str], in_having: bool
    ) -> exp.Expr:
        script = self.expressions.script
        first = node.parts[0].name.lower()
        if first in grouping.window_names:
            if len(node.parts) == 1:
                return _column(WINDOW, node)
            window = Relation(self.source.operator, (Attribute(first, WINDOW, WINDOW_TYPE),), False)
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
            node, message, f"add '{node.name}' to GROUP BY, or use it in an aggregate function"
        )

    def _is_aggregate(self, node: exp.Expr) -> bool:
        call = node.this if isinstance(node, exp.Filter) else node
        return self.expressions.call_kind(call) is Call.AGGREGATE

    def _call(self, node: exp.Expr, grouping: Grouping) -> AggregateCall:
        """The aggregate call, one for each that is written differently."""
        script = self.expressions.script
        call = node.this if isinstance(node, exp.Filter) else node
        function = self.expressions.functions.spelling(call.name)
        condition = (
            self.expressions.sql(node.expression.this, self.source) if node is not call else None
        )
        arguments = self._arguments(call, function)
        key = (function, arguments, condition)
        if key not in self._calls:
            self._calls[key] = AggregateCall(
                name=self._unused_name(function, grouping),
                function=self.expressions.functions.called(call.name),
                arguments=arguments,
                condition=condition,
                position=script.position(node),
            )
        return self._calls[key]

    def _unused_name(self, function: str, grouping: Grouping) -> str:
        name = f"{function}_{len(self._calls) + 1}"
        taken = {each.name.lower() for each in grouping.keys}
        while name.lower() in taken:
            name = f"{name}_"
        return name

    def _arguments(self, call: exp.Expr, function: str) -> tuple[str, ...]:
        script = self.expressions.script
        arguments = call.expressions
        if function == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return ()
        for each in arguments:
            if isinstance(each, exp.Distinct):
                message = f"{function}(DISTINCT ...) is not supported yet"
                raise script.error(each, message, "leave DISTINCT out, or group by the column")
        if len(arguments) != 1 and not self.expressions.functions.is_user_defined(function):
            raise script.error(call, f"{function}() takes one argument, not {len(arguments)}")
        return tuple(self.expressions.sql(each, self.source) for each in arguments)

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
        is_window = isinstance(rewritten, exp.Column) and rewritten.name == WINDOW
        return Item(
            name=self.expressions.alias(node) or self._name(node, grouping),
            bound=self.expressions.bound(rewritten, output),
            type=WINDOW_TYPE if is_window else None,
            position=self.expressions.script.position(node),
        )

    def _name(self, node: exp.Expr, grouping: Grouping) -> str | None:
        """The name of an item without alias: the column's, or the function's."""
        if isinstance(node, exp.Column):
            if node.parts[0].name.lower() in grouping.window_names:
                return node.name
            attribute, path = self.source.resolve(node, self.expressions.script)
            return path[-1] if path else attribute.name
        call = node.this if isinstance(node, exp.Filter) else node
        if self.expressions.call_kind(call) is Call.TUMBLE:
            return WINDOW
        return (
            self.expressions.functions.spelling(call.name)
            if isinstance(call, exp.Anonymous)
            else None
        )


def _column(name: str, replaced: exp.Expr) -> exp.Expr:
    column = exp.Column(this=exp.to_identifier(name, quoted=True))
    if "start" in replaced.meta:
        column.meta["start"] = replaced.meta["start"]
    return column
