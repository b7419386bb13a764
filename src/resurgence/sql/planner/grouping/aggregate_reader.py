"""Parsing of aggregate calls: FILTER, DISTINCT, ORDER BY, WITHIN GROUP, IGNORE NULLS, and the names
of other systems for Spark's functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.graph.aggregate_call import AggregateCall, NullTreatment, SortOrder
from resurgence.sql.catalog.relation import Relation
from resurgence.sql.functions.aggregates import AggregateFunction, Trait
from resurgence.sql.planner.expressions import Expressions

_AROUND_CALL = exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls
_ASCENDING = "Order by one value, ascending, and use one minus the fraction."


@dataclass(frozen=True)
class AggregateReader:
    """Reads aggregate calls over one relation."""

    expressions: Expressions
    source: Relation

    def read(self, node: exp.Expr) -> AggregateCall:
        """Return the call, named after its function and without position. Raise SqlError if its
        parts cannot be combined.
        """
        call = unwrapped(node)
        known = self.expressions.functions.aggregate(call.name)
        if known.refusal is not None:
            raise self._error(call, *known.refusal)
        condition, within, nulls = None, list[exp.Expr](), None
        around = node
        while isinstance(around, _AROUND_CALL):
            if isinstance(around, exp.Filter):
                condition = self._sql(around.expression.this)
            elif isinstance(around, exp.WithinGroup):
                within = around.expression.expressions
            else:
                nulls = _null_treatment(around)
            around = around.this
        read = self._call(call, known, within, nulls)
        if read.is_user_defined and (read.is_distinct or read.order_by or read.null_treatment):
            message = (
                f"the user-defined aggregate {call.name}() does not support DISTINCT, ORDER BY or"
                " IGNORE NULLS"
            )
            raise self._error(call, message, "Implement it in the function itself.")
        return read.model_copy(update={"condition": condition})

    def _call(
        self,
        call: exp.Expr,
        known: AggregateFunction,
        within: list[exp.Expr],
        nulls: NullTreatment | None,
    ) -> AggregateCall:
        spelling = self.expressions.functions.spelling(call.name)
        function = self.expressions.functions.called(call.name)
        values: list[exp.Expr] = []
        inside: list[exp.Expr] = []
        is_distinct = False
        for each in call.expressions:
            value = each
            if isinstance(value, exp.Order):
                inside, value = value.expressions, value.this
            if isinstance(value, exp.Distinct):
                is_distinct = True
                values += value.expressions
                continue
            if isinstance(value, exp.IgnoreNulls | exp.RespectNulls):
                nulls, value = _null_treatment(value), value.this
            values.append(value)
        self._check_order(call, known, within, inside)
        if function == "count" and len(values) == 1 and isinstance(values[0], exp.Star):
            return AggregateCall(name=spelling, function=function)
        if known.has(Trait.UNARY) and len(values) != 1:
            raise self._error(call, f"{function}() takes one argument, not {len(values)}")
        if function == "count" and not values:
            raise self._error(call, "count() requires an argument or *")
        orders: tuple[SortOrder, ...] = ()
        if call.name.lower() == "approx_percentile_cont_with_weight":
            texts, nulls = self._weighted(call, values, within), None
        elif function == "percentile_approx" and call.name.lower() != function:
            texts, nulls = self._percentile(call, values, within), None
        else:
            texts = [self._sql(each) for each in values]
            orders = tuple(self._order(each) for each in within or inside)
        if is_distinct and inside and any(each.sql not in texts for each in orders):
            message = "with DISTINCT, ORDER BY can use only the arguments of the aggregate"
            raise self._error(inside[0], message, "Order by the argument itself.")
        return AggregateCall(
            name=spelling,
            function=function,
            arguments=tuple(texts),
            is_distinct=is_distinct,
            order_by=orders,
            null_treatment=nulls,
        )

    def _check_order(
        self,
        call: exp.Expr,
        known: AggregateFunction,
        within: list[exp.Expr],
        inside: list[exp.Expr],
    ) -> None:
        function = self.expressions.functions.called(call.name)
        takes_within = known.has(Trait.WITHIN_GROUP)
        if within and not takes_within:
            message = f"{function}() does not support WITHIN GROUP"
            listed = known.has(Trait.ORDER_BY)
            hint = f"Write {function}(x ORDER BY y)." if listed else "Remove WITHIN GROUP."
            raise self._error(call, message, hint)
        if inside and not known.has(Trait.ORDER_BY):
            hint = "Use WITHIN GROUP (ORDER BY ...)." if takes_within else "Remove ORDER BY."
            raise self._error(inside[0], f"{function}() does not support ORDER BY", hint)

    def _percentile(
        self, call: exp.Expr, values: list[exp.Expr], within: list[exp.Expr]
    ) -> list[str]:
        """Return the arguments of percentile_approx() for a call under another name."""
        name = call.name.lower()
        if name == "approx_percentile":
            return [self._sql(each) for each in values]
        if name == "approx_median":
            if len(values) != 1:
                raise self._error(call, f"{name}() takes one argument, not {len(values)}")
            return [self._sql(values[0]), "0.5D"]
        if within:
            if within[0].args.get("desc") or len(within) > 1:
                message = f"{name}() requires a single ascending ORDER BY"
                raise self._error(within[0], message, _ASCENDING)
            values = [within[0].this, *values]
        if len(values) not in (2, 3):
            hint = "Write it as in approx_percentile_cont(x, 0.9)."
            raise self._error(call, f"{name}() takes a value and a fraction", hint)
        # A third argument is the sketch size of another system.
        return [self._sql(each) for each in values[:2]]

    def _weighted(
        self, call: exp.Expr, values: list[exp.Expr], within: list[exp.Expr]
    ) -> list[str]:
        """Return DataFusion's value, weight and fraction as arguments of percentile(), which is
        exact.
        """
        if within and (within[0].args.get("desc") or len(within) > 1):
            message = f"{call.name}() requires a single ascending ORDER BY"
            raise self._error(within[0], message, _ASCENDING)
        values = [*(each.this for each in within), *values]
        if len(values) not in (3, 4):
            hint = "Write it as in approx_percentile_cont_with_weight(x, weight, 0.9)."
            raise self._error(call, f"{call.name}() takes a value, a weight and a fraction", hint)
        # A fourth argument is the sketch size of another system.
        value, weight, fraction = (self._sql(each) for each in values[:3])
        return [value, fraction, weight]

    def _order(self, node: exp.Expr) -> SortOrder:
        return SortOrder(
            sql=self._sql(node.this),
            descending=bool(node.args.get("desc")),
            nulls_first=bool(node.args.get("nulls_first")),
        )

    def _sql(self, node: exp.Expr) -> str:
        return self.expressions.sql(node, self.source)

    def _error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(node, message, hint)


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return the call itself, without FILTER, WITHIN GROUP and null treatment."""
    while isinstance(node, _AROUND_CALL):
        node = node.this
    return node


def _null_treatment(node: exp.Expr) -> NullTreatment:
    return NullTreatment.IGNORE if isinstance(node, exp.IgnoreNulls) else NullTreatment.RESPECT
