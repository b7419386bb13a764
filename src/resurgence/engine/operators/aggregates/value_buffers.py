"""Aggregates that cannot be merged: their arguments are buffered row by row, and Spark's own
function is called over them when the window closes.

DISTINCT buffers each value once. Values are passed to the function in order, so that a function
that depends on the order of its input returns the same result however the input is cut into epochs:
in the order of the call if it has one, by event time for functions that return a sequence, else by
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
    """Plan a call with buffered values, in state columns that begin with `name`."""
    known = aggregate_function(call.function)
    # Functions with partials are here only with arguments that count duplicates: max_by(x, y, 3).
    is_set = known.has(Trait.IGNORES_DUPLICATES) and known.partials is None
    as_set = call.is_distinct or is_set
    fixed = [is_constant(rows, each) for each in call.arguments]
    if not call.order_by and all(fixed):
        fixed = [False] * len(fixed)
    varying = [sql for sql, constant in zip(call.arguments, fixed, strict=True) if not constant]
    fields = {
        f"o{number}": order.sql
        for number, order in enumerate(call.order_by)
        if order.sql not in varying
    }
    if known.has(Trait.ORDER_BY) and not as_set:
        fields[_AT] = f"unix_micros(`{EVENT_TIME}`)"
    fields |= {f"v{number}": sql for number, sql in enumerate(varying)}
    inputs = [f"{sql} AS {name}_{field}" for field, sql in fields.items()]
    if call.condition is not None:
        inputs.append(f"{call.condition} AS {name}_if")

    struct = ", ".join(f"'{field}', {name}_{field}" for field in fields)
    kind = type_of(rows.selectExpr(*inputs, "1 AS one"), f"named_struct({struct})")
    has_order = is_ordered(kind)
    omits_nulls = call.function == "collect_set" or null_filter(call) is not None
    chosen = filter_clause(
        f"{name}_if" if call.condition is not None else None,
        f"{name}_v0 IS NOT NULL" if omits_nulls and "v0" in fields else None,
    )
    flat = f"flatten(collect_list({name}))"
    partial = (
        Partial(name, f"collect_set(named_struct({struct})){chosen}", f"array_distinct({flat})")
        if as_set and has_order
        else Partial(name, f"collect_list(named_struct({struct})){chosen}", flat)
    )
    numbers = iter(range(len(varying)))
    values = tuple(
        sql if constant else f"{name}.v{next(numbers)}"
        for sql, constant in zip(call.arguments, fixed, strict=True)
    )
    places = {sql: field for field, sql in reversed(fields.items())}
    orders = tuple(
        each.model_copy(update={"sql": f"{name}.{places[each.sql]}"}) for each in call.order_by
    )
    over_buffer = call.model_copy(
        update={
            "arguments": values,
            "order_by": orders,
            # A buffer with an order has each value once, and needs no DISTINCT: Spark cannot call
            # several functions with DISTINCT side by side.
            "is_distinct": call.is_distinct and not has_order,
            "condition": f"{name} IS NOT NULL",
        }
    )
    finish = _finish(over_buffer, name, fields, has_order)
    ordered = f"array_distinct({name})" if as_set else name
    return AggregatePlan(
        tuple(inputs), (partial,), finish, buffer=f"sort_array({ordered})" if has_order else name
    )


def _finish(call: AggregateCall, name: str, fields: dict[str, str], has_order: bool) -> str:
    """Return SQL for the call over buffered values."""
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
        # Of equally frequent values Spark returns any one; choose the least.
        call = call.model_copy(update={"arguments": (*call.arguments, "true")})
    return call.sql
