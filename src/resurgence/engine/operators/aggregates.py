"""Aggregates as mergeable partials: what is kept per epoch, how two of them become one, what the
user sees.

The answer is the one that Spark's own function gives over all rows at once, type included. Where
Spark's answer depends on the order of rows (`first`, `last`, `collect_list`), it is that over rows
in the order of event time. What cannot be merged is kept row by row (`kept_values`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql.types import DecimalType, NumericType, StringType

from resurgence.engine.operators.aggregate_plan import (
    AggregatePlan,
    Partial,
    filtered,
    is_ordered,
    type_of,
)
from resurgence.engine.operators.kept_values import keep_values
from resurgence.engine.operators.moments import (
    COVARIANCES,
    VARIANCES,
    covariance_make,
    covariance_merge,
    variance_make,
    variance_merge,
)
from resurgence.graph.values import EVENT_TIME, AggregateCall
from resurgence.sql.functions.call_parts import CallParts, Order, batch_sql, parts_of
from resurgence.udf import registered_name

_GUARD_DIGITS = 12
"""Digits that a quotient needs beyond those of the result to be rounded right, and the digits of
the highest count.
"""

_SAME_AS = {
    "any": "bool_or",
    "any_value": "first",
    "approx_percentile": "percentile_approx",
    "array_agg": "collect_list",
    "every": "bool_and",
    "first_value": "first",
    "last_value": "last",
    "mean": "avg",
    "some": "bool_or",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "string_agg": "listagg",
    "variance": "var_samp",
}
"""Functions with two names."""

_OWN_MERGE = frozenset({"min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"})
"""Functions that merge their own results."""

_DISTINCT_OR_NOT = _OWN_MERGE - {"bit_xor"} | {"max_by", "min_by", "collect_set"}
"""Functions to which DISTINCT makes no difference."""


@dataclass(frozen=True)
class _Columns:
    """The columns that a mergeable call takes from the input."""

    name: str
    values: tuple[str, ...]
    condition: str | None
    """The column that says which rows count."""
    rows: DataFrame
    """Of these columns; only asked for types."""

    def chosen(self, *conditions: str) -> str:
        """The FILTER clause of the call."""
        return filtered(*conditions, self.condition)

    def present(self) -> str:
        """The FILTER clause that also leaves out rows in which a value is null."""
        return self.chosen(*(f"{each} IS NOT NULL" for each in self.values))


def plan_aggregate(call: AggregateCall, name: str, rows: DataFrame) -> AggregatePlan:
    """How one aggregate call is kept, in columns that begin with `name`. `rows` is only asked
    for types.
    """
    parts = parts_of(call)
    is_own = call.function.startswith(registered_name(""))
    if not is_own:
        function = call.function.lower()
        parts = replace(parts, function=_SAME_AS.get(function, function))
        if parts.function in _DISTINCT_OR_NOT:
            parts = replace(parts, is_distinct=False)
        # Spark sees the call itself once: what it refuses there is the user's mistake.
        rows.selectExpr(f"{parts_of(call).sql(call.condition)} AS value")
        if not _can_merge(parts, rows):
            return keep_values(parts, call.condition, name, rows)
    columns = tuple(f"{name}_in{index}" for index in range(len(parts.values)))
    inputs = [f"{sql} AS {column}" for sql, column in zip(parts.values, columns, strict=True)]
    if parts.function in ("first", "last"):
        inputs.append(f"unix_micros(`{EVENT_TIME}`) AS {name}_at")
    if call.condition is not None:
        inputs.append(f"{call.condition} AS {name}_if")
    taken = _Columns(
        name=name,
        values=columns,
        condition=f"{name}_if" if call.condition is not None else None,
        rows=rows.selectExpr(*inputs, "1 AS one"),
    )
    partials, finish = _own(call.function, taken) if is_own else _merged(parts, taken)
    return AggregatePlan(tuple(inputs), partials, finish)


def settled_sql(call: AggregateCall, rows: DataFrame) -> str:
    """The call in Spark's batch SQL, with one answer in whatever order Spark takes the rows: of
    values that are as good the same one as over a window. `rows` is only asked for types.
    """
    parts = parts_of(call)
    function = _SAME_AS.get(parts.function.lower(), parts.function.lower())
    if parts.function.startswith(registered_name("")) or not parts.values:
        return batch_sql(call)
    value = parts.values[0]
    if function in ("max_by", "min_by") and len(parts.values) == 2:
        pair = f"named_struct('by', {parts.values[1]}, 'value', {value})"
        chosen = filtered(call.condition, f"{parts.values[1]} IS NOT NULL")
        if is_ordered(type_of(rows, pair)):
            return f"{function.removesuffix('_by')}({pair}){chosen}.value"
    if not is_ordered(type_of(rows, value)):
        return batch_sql(call)
    is_list = function in ("collect_list", "first", "last", "listagg")
    if function == "collect_set" or (function == "collect_list" and parts.is_distinct):
        return batch_sql(call) if parts.orders else f"sort_array({batch_sql(call)})"
    if function == "listagg" and parts.is_distinct:
        return _distinct_text(parts, call.condition) or batch_sql(call)
    if function == "mode" and len(parts.values) == 1 and not parts.orders:
        parts = replace(parts, values=(value, "true"))
    elif is_list and (not parts.is_distinct or not parts.orders):
        parts = replace(parts, orders=(*parts.orders, Order(value)))
    return parts.sql(call.condition)


def _distinct_text(parts: CallParts, condition: str | None) -> str | None:
    """listagg(DISTINCT x) by a set: Spark cannot call it beside others with DISTINCT. None: it is
    ordered by something else.
    """
    value, *separator = parts.values
    order = parts.orders[0] if parts.orders else Order(value)
    if len(parts.orders) > 1 or order.sql != value:
        return None
    values = f"collect_set({value}){filtered(condition)}"
    text = f"array_join(sort_array({values}, {not order.descending}), {(*separator, repr(''))[0]})"
    return f"IF(size({values}) > 0, {text}, NULL)"


def _can_merge(parts: CallParts, rows: DataFrame) -> bool:
    """Whether the call can be kept as partials."""
    if parts.orders or parts.is_distinct:
        return False
    function, values = parts.function, parts.values
    if function in ("first", "last", "count"):
        return True
    if function == "avg":
        # Spark adds intervals as intervals, and divides them by rules of their own.
        return isinstance(type_of(rows, values[0]), NumericType | StringType)
    if function in COVARIANCES or function in ("regr_count", "regr_avgx", "regr_avgy"):
        return True
    if function in ("max_by", "min_by"):
        return len(values) == 2
    return len(values) == 1 and function in {*_OWN_MERGE, *VARIANCES, "sum", "count_if"}


def _merged(parts: CallParts, columns: _Columns) -> tuple[tuple[Partial, ...], str]:
    """The partials of one of Spark's aggregates, and the result over them."""
    function, name, chosen = parts.function, columns.name, columns.chosen()
    arguments = ", ".join(columns.values)
    if function in ("count", "regr_count"):
        return (Partial(name, f"count({arguments or '1'}){chosen}", f"sum({name})"),), name
    if function == "count_if":
        return (Partial(name, f"count_if({arguments}){chosen}", f"sum({name})"),), name
    if function in _OWN_MERGE:
        return (Partial(name, f"{function}({arguments}){chosen}", f"{function}({name})"),), name
    if function == "sum":
        # The sum of sums would widen a decimal again; the state keeps the type of the first sum.
        kind = _type_text(columns.rows, f"sum({arguments})")
        return (Partial(name, f"sum({arguments}){chosen}", f"CAST(sum({name}) AS {kind})"),), name
    if function == "avg":
        return _average(name, arguments, chosen, columns.rows)
    if function in ("regr_avgx", "regr_avgy"):
        value = columns.values[1 if function == "regr_avgx" else 0]
        return _average(name, f"CAST({value} AS DOUBLE)", columns.present(), columns.rows)
    if function in VARIANCES:
        make = variance_make(f"CAST({arguments} AS DOUBLE)", chosen)
        return (Partial(name, make, variance_merge(name)),), VARIANCES[function].format(p=name)
    if function in COVARIANCES:
        y, x = (f"CAST({each} AS DOUBLE)" for each in columns.values)
        make = covariance_make(y, x, columns.present())
        return (Partial(name, make, covariance_merge(name)),), COVARIANCES[function].format(p=name)
    if function in ("first", "last"):
        chosen = columns.chosen(
            *([f"{columns.values[0]} IS NOT NULL"] if parts.left_out_nulls else [])
        )
        pick = "min" if function == "first" else "max"
        return _at_extreme(pick, f"{name}_at", columns, chosen)
    value, by = columns.values
    chosen = columns.chosen(f"{by} IS NOT NULL")
    return _at_extreme(function.removesuffix("_by"), by, columns, chosen)


def _at_extreme(
    pick: str, by: str, columns: _Columns, chosen: str
) -> tuple[tuple[Partial, ...], str]:
    """The value where another is least or greatest; of several, the least or greatest value."""
    name, value = columns.name, columns.values[0]
    pair = f"named_struct('by', {by}, 'value', {value})"
    if is_ordered(type_of(columns.rows, pair)):
        partial = Partial(name, f"{pick}({pair}){chosen}", f"{pick}({name})")
    else:
        partial = Partial(name, f"{pick}_by({pair}, {by}){chosen}", f"{pick}_by({name}, {name}.by)")
    return (partial,), f"{name}.value"


def _own(function: str, columns: _Columns) -> tuple[tuple[Partial, ...], str]:
    """A user's aggregate cannot be merged: it keeps its values, and is computed when the window
    closes. Like Spark's aggregates of several arguments it leaves out rows where one of them is
    null.
    """
    kept = tuple(
        Partial(
            f"{columns.name}_{index}",
            f"collect_list({column}){columns.present()}",
            f"flatten(collect_list({columns.name}_{index}))",
        )
        for index, column in enumerate(columns.values)
    )
    return kept, f"{function}({', '.join(each.name for each in kept)})"


def _average(
    name: str, value: str, condition: str, rows: DataFrame
) -> tuple[tuple[Partial, ...], str]:
    # Spark adds decimals as decimals and everything else as doubles.
    exact = isinstance(rows.selectExpr(value).schema[0].dataType, DecimalType)
    addend = value if exact else f"CAST({value} AS DOUBLE)"
    kind = _type_text(rows, f"sum({addend})")
    result = _type_text(rows, f"avg({value})")
    total = Partial(f"{name}_sum", f"sum({addend}){condition}", f"CAST(sum({name}_sum) AS {kind})")
    count = Partial(f"{name}_count", f"count({value}){condition}", f"sum({name}_count)")
    quotient = f"{name}_sum / {name}_count"
    if exact:
        quotient = _decimal_quotient(f"{name}_sum", f"{name}_count", kind, result, rows)
    mean = f"CASE WHEN {name}_count > 0 THEN CAST({quotient} AS {result}) END"
    return (total, count), mean


def _decimal_quotient(total: str, count: str, kind: str, result: str, rows: DataFrame) -> str:
    """A decimal divided by a count, to all the digits of the result.

    Spark's own average divides exactly; its `/` gives wide decimals fewer digits. Then whole and
    fraction are divided apart, and put together as text: their sum could be too wide as well.
    """
    plain = f"{total} / {count}"
    scale = _scale_of(rows, f"CAST(0 AS {result})")
    by_one = f"CAST(0 AS {kind}) / CAST(1 AS BIGINT)"
    if _scale_of(rows, by_one) >= scale + _GUARD_DIGITS:
        return plain
    divisor = f"CAST({count} AS DECIMAL({_GUARD_DIGITS},0))"
    rest = f"(abs({total}) % {divisor})"
    whole = f"CAST((abs({total}) - {rest}) / {divisor} AS DECIMAL(38,0))"
    fraction = f"CAST({rest} / {divisor} AS DECIMAL({min(38, scale + 1)},{scale}))"
    digits = f"concat({whole} + floor({fraction}), substring(CAST({fraction} AS STRING), 2))"
    mean = f"CAST({digits} AS {result})"
    return f"CASE WHEN {total} < 0 THEN -{mean} ELSE {mean} END"


def _scale_of(rows: DataFrame, expression: str) -> int:
    kind = type_of(rows, expression)
    assert isinstance(kind, DecimalType)
    return kind.scale


def _type_text(rows: DataFrame, expression: str) -> str:
    return type_of(rows, expression).simpleString()
