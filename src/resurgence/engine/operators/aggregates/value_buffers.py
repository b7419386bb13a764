"""Aggregates that cannot be merged: their arguments are kept row by row, and Spark's own function
is called over them when the window closes.

DISTINCT keeps each value once. Values are given to the function in order, so that a function that
depends on the order of its input gives the same answer however the input was cut into epochs: in
the order of the call if it has one, by event time for functions that make a sequence, else by
value.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from resurgence.engine.operators.aggregates.aggregate_plan import (
    AggregatePlan,
    Partial,
    is_constant,
    is_ordered,
    type_of,
)
from resurgence.graph.aggregate_call import AggregateCall, SortOrder
from resurgence.graph.values import EVENT_TIME
from resurgence.sql.functions.aggregate_sql import comparator, filter_clause, null_filter, picked
from resurgence.sql.functions.aggregates import Trait, aggregate_function

_AT = "at"


def buffer_values(call: AggregateCall, name: str, rows: DataFrame) -> AggregatePlan:
    """How a call is kept, in columns that begin with `name`."""
    known = aggregate_function(call.function)
    # What has partials is here with other arguments, which make duplicates count: max_by(x, y, 3).
    is_set = known.has(Trait.IGNORES_DUPLICATES) and known.partials is None
    as_set = call.is_distinct or is_set
    fixed = [is_constant(rows, each) for each in call.arguments]
    if not call.order_by and all(fixed):
        fixed = [False] * len(fixed)
    kept = [sql for sql, constant in zip(call.arguments, fixed, strict=True) if not constant]
    fields = {
        f"o{number}": order.sql
        for number, order in enumerate(call.order_by)
        if order.sql not in kept
    }
    if known.has(Trait.ORDER_BY) and not as_set:
        fields[_AT] = f"unix_micros(`{EVENT_TIME}`)"
    fields |= {f"v{number}": sql for number, sql in enumerate(kept)}
    inputs = [f"{sql} AS {name}_{field}" for field, sql in fields.items()]
    if call.condition is not None:
        inputs.append(f"{call.condition} AS {name}_if")

    struct = ", ".join(f"'{field}', {name}_{field}" for field in fields)
    kind = type_of(rows.selectExpr(*inputs, "1 AS one"), f"named_struct({struct})")
    has_order = is_ordered(kind)
    nulls_left_out = call.function == "collect_set" or null_filter(call) is not None
    chosen = filter_clause(
        f"{name}_if" if call.condition is not None else None,
        f"{name}_v0 IS NOT NULL" if nulls_left_out and "v0" in fields else None,
    )
    flat = f"flatten(collect_list({name}))"
    partial = (
        Partial(name, f"collect_set(named_struct({struct})){chosen}", f"array_distinct({flat})")
        if as_set and has_order
        else Partial(name, f"collect_list(named_struct({struct})){chosen}", flat)
    )
    numbers = iter(range(len(kept)))
    values = tuple(
        sql if constant else f"{name}.v{next(numbers)}"
        for sql, constant in zip(call.arguments, fixed, strict=True)
    )
    places = {sql: field for field, sql in reversed(fields.items())}
    orders = tuple(
        each.model_copy(update={"sql": f"{name}.{places[each.sql]}"}) for each in call.order_by
    )
    over_kept = call.model_copy(
        update={
            "arguments": values,
            "order_by": orders,
            # Where each value is there once, the function need not know: Spark cannot call all of
            # them with DISTINCT side by side.
            "is_distinct": call.is_distinct and not has_order,
            "condition": f"{name} IS NOT NULL",
        }
    )
    finish = _finish(over_kept, name, fields, has_order)
    ordered = f"array_distinct({name})" if as_set else name
    return AggregatePlan(
        tuple(inputs), (partial,), finish, kept=f"sort_array({ordered})" if has_order else name
    )


def _finish(call: AggregateCall, name: str, fields: dict[str, str], has_order: bool) -> str:
    """The call over kept values."""
    if call.function in ("collect_list", "first", "last"):
        keys = [(each.sql.removeprefix(f"{name}."), each) for each in call.order_by]
        keys += [(_AT, SortOrder(sql=_AT))] if _AT in fields else []
        keys += [("v0", SortOrder(sql="v0"))] if has_order else []
        values = f"collect_list({name}){filter_clause(call.condition)}"
        return picked(
            call.function, f"array_sort({values}, {comparator(keys)})" if keys else values
        )
    if call.function == "collect_set":
        return f"sort_array({call.sql})" if has_order else call.sql
    if call.function == "listagg" and not call.order_by:
        order = [SortOrder(sql=f"{name}.{_AT}")] if _AT in fields else []
        call = call.model_copy(update={"order_by": (*order, SortOrder(sql=f"{name}.v0"))})
    elif call.function == "mode" and len(call.arguments) == 1:
        # Of several values that come as often, Spark gives any; the least is as good.
        call = call.model_copy(update={"arguments": (*call.arguments, "true")})
    return call.sql
