"""An aggregate call as the user wrote it, read into its parts: FILTER, DISTINCT, ORDER BY, WITHIN
GROUP, IGNORE NULLS, and names that other systems give to Spark's functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.sql.catalog.relation import Relation
from resurgence.sql.functions.call_parts import ORDERED_LISTS, WITHIN_GROUP, CallParts, Order
from resurgence.sql.functions.registry import REFUSED_AGGREGATES
from resurgence.sql.planner.expressions import Expressions

_AROUND_CALL = exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls
_WITHIN_GROUP = frozenset({"approx_percentile_cont", "approx_percentile_cont_with_weight"})
_OF_ONE_VALUE = frozenset({"avg", "count_if", "max", "mean", "median", "min", "sum"})


@dataclass(frozen=True)
class ReadCall:
    """An aggregate call, bound to the columns of its input."""

    spelling: str
    parts: CallParts
    condition: str | None


@dataclass(frozen=True)
class AggregateReader:
    """Reads aggregate calls over one relation."""

    expressions: Expressions
    source: Relation

    def read(self, node: exp.Expr) -> ReadCall:
        """The parts of a call; raises SqlError if they do not go together."""
        call = unwrapped(node)
        functions = self.expressions.functions
        if call.name.lower() in REFUSED_AGGREGATES and not functions.is_user_defined(call.name):
            raise self.expressions.script.error(call, *REFUSED_AGGREGATES[call.name.lower()])
        condition, within, nulls = None, list[exp.Expr](), None
        around = node
        while isinstance(around, _AROUND_CALL):
            if isinstance(around, exp.Filter):
                condition = self._sql(around.expression.this)
            elif isinstance(around, exp.WithinGroup):
                within = around.expression.expressions
            else:
                nulls = _nulls(around)
            around = around.this
        parts = self._parts(call, within, nulls)
        if functions.is_user_defined(call.name) and (
            parts.is_distinct or parts.orders or parts.nulls
        ):
            message = f"{call.name}() is yours: it takes neither DISTINCT nor ORDER BY"
            raise self.expressions.script.error(call, message, "do that in the function itself")
        return ReadCall(functions.spelling(call.name), parts, condition)

    def _parts(self, call: exp.Expr, within: list[exp.Expr], nulls: str | None) -> CallParts:
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
                nulls, value = _nulls(value), value.this
            values.append(value)
        self._check_order(call, function, within, inside)
        if function == "count" and len(values) == 1 and isinstance(values[0], exp.Star):
            return CallParts(function, ())
        if function in _OF_ONE_VALUE and len(values) != 1:
            raise self._error(call, f"{function}() takes one argument, not {len(values)}")
        if function == "count" and not values:
            raise self._error(call, "count() takes an argument, or *")
        if call.name.lower() == "approx_percentile_cont_with_weight":
            return CallParts(function, tuple(self._weighted(call, values, within)), is_distinct)
        if function == "percentile_approx" and call.name.lower() != function:
            return CallParts(function, tuple(self._percentile(call, values, within)), is_distinct)
        texts = [self._sql(each) for each in values]
        orders = tuple(self._order(each) for each in within or inside)
        if is_distinct and inside and any(each.sql not in texts for each in orders):
            message = "with DISTINCT, ORDER BY takes only what is collected"
            raise self._error(inside[0], message, "order by the argument itself")
        return CallParts(function, tuple(texts), is_distinct, orders, nulls)

    def _check_order(
        self, call: exp.Expr, function: str, within: list[exp.Expr], inside: list[exp.Expr]
    ) -> None:
        takes_within = function in WITHIN_GROUP or call.name.lower() in _WITHIN_GROUP
        if within and not takes_within:
            message = f"{function}() takes no WITHIN GROUP"
            listed = function in ORDERED_LISTS
            hint = f"write {function}(x ORDER BY y)" if listed else "leave it out"
            raise self._error(call, message, hint)
        if inside and function not in ORDERED_LISTS | {"listagg", "string_agg"}:
            hint = "use WITHIN GROUP (ORDER BY ...)" if takes_within else "leave it out"
            raise self._error(inside[0], f"{function}() takes no ORDER BY", hint)

    def _percentile(
        self, call: exp.Expr, values: list[exp.Expr], within: list[exp.Expr]
    ) -> list[str]:
        """The arguments of percentile_approx() for a call under another name."""
        name = call.name.lower()
        if name == "approx_percentile":
            return [self._sql(each) for each in values]
        if name == "approx_median":
            if len(values) != 1:
                raise self._error(call, f"{name}() takes one argument, not {len(values)}")
            return [self._sql(values[0]), "0.5D"]
        if within:
            if within[0].args.get("desc") or len(within) > 1:
                hint = "order by one value, and take one less the fraction"
                raise self._error(within[0], f"{name}() takes one ascending order", hint)
            values = [within[0].this, *values]
        if len(values) not in (2, 3):
            hint = "as in approx_percentile_cont(x, 0.9)"
            raise self._error(call, f"{name}() takes a value and a fraction", hint)
        # A third argument is a size of another system's sketch.
        return [self._sql(each) for each in values[:2]]

    def _weighted(
        self, call: exp.Expr, values: list[exp.Expr], within: list[exp.Expr]
    ) -> list[str]:
        """DataFusion's value, weight and fraction as those of percentile(), which is exact."""
        if within and (within[0].args.get("desc") or len(within) > 1):
            hint = "order by one value, and take one less the fraction"
            raise self._error(within[0], f"{call.name}() takes one ascending order", hint)
        values = [*(each.this for each in within), *values]
        if len(values) not in (3, 4):
            hint = "as in approx_percentile_cont_with_weight(x, weight, 0.9)"
            raise self._error(call, f"{call.name}() takes a value, a weight and a fraction", hint)
        # A fourth argument is a size of another system's sketch.
        value, weight, fraction = (self._sql(each) for each in values[:3])
        return [value, fraction, weight]

    def _order(self, node: exp.Expr) -> Order:
        return Order(
            self._sql(node.this), bool(node.args.get("desc")), bool(node.args.get("nulls_first"))
        )

    def _sql(self, node: exp.Expr) -> str:
        return self.expressions.sql(node, self.source)

    def _error(self, node: exp.Expr, message: str, hint: str = "") -> SqlError:
        return self.expressions.script.error(node, message, hint)


def unwrapped(node: exp.Expr) -> exp.Expr:
    """The call itself, without FILTER, WITHIN GROUP and the like."""
    while isinstance(node, _AROUND_CALL):
        node = node.this
    return node


def _nulls(node: exp.Expr) -> str:
    return "IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else "RESPECT NULLS"
