"""Aggregates that cannot be merged: their arguments are kept row by row, and Spark's own function
is called over them when the window closes.

DISTINCT keeps each value once. Values are given to the function in order, so that a function that
depends on the order of its input gives the same answer however the input was cut into epochs: in
the order of the call if it has one, by event time for functions that make a sequence, else by
value.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from resurgence.engine.operators.aggregate_plan import (
    AggregatePlan,
    Partial,
    filtered,
    is_constant,
    is_ordered,
    type_of,
)
from resurgence.graph.values import EVENT_TIME
from resurgence.sql.functions.call_parts import CallParts, Order, comparator, picked

_SETS = frozenset({"approx_count_distinct", "collect_set"})
"""Functions to which a value that comes twice makes no difference."""

_SEQUENCES = frozenset({"collect_list", "listagg", "first", "last"})
"""Functions that make a sequence of their values, or take one by its place."""

_AT = "at"


def keep_values(
    parts: CallParts, condition: str | None, name: str, rows: DataFrame
) -> AggregatePlan:
    """How a call is kept, in columns that begin with `name`."""
    function = parts.function
    as_set = parts.is_distinct or function in _SETS
    fixed = [is_constant(rows, each) for each in parts.values]
    if not parts.orders and all(fixed):
        fixed = [False] * len(fixed)
    kept = [sql for sql, constant in zip(parts.values, fixed, strict=True) if not constant]
    fields = {
        f"o{number}": order.sql
        for number, order in enumerate(parts.orders)
        if order.sql not in kept
    }
    if function in _SEQUENCES and not as_set:
        fields[_AT] = f"unix_micros(`{EVENT_TIME}`)"
    fields |= {f"v{number}": sql for number, sql in enumerate(kept)}
    inputs = [f"{sql} AS {name}_{field}" for field, sql in fields.items()]
    if condition is not None:
        inputs.append(f"{condition} AS {name}_if")

    struct = ", ".join(f"'{field}', {name}_{field}" for field in fields)
    kind = type_of(rows.selectExpr(*inputs, "1 AS one"), f"named_struct({struct})")
    has_order = is_ordered(kind)
    nulls_left_out = function == "collect_set" or bool(parts.left_out_nulls)
    chosen = filtered(
        f"{name}_if" if condition is not None else None,
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
        for sql, constant in zip(parts.values, fixed, strict=True)
    )
    places = {sql: field for field, sql in reversed(fields.items())}
    orders = tuple(replace(each, sql=f"{name}.{places[each.sql]}") for each in parts.orders)
    # Where each value is there once, the function need not know: Spark cannot call all of them
    # with DISTINCT side by side.
    is_distinct = parts.is_distinct and not has_order
    call = replace(parts, values=values, orders=orders, is_distinct=is_distinct)
    finish = _finish(call, name, fields, has_order)
    ordered = f"array_distinct({name})" if as_set else name
    return AggregatePlan(
        tuple(inputs), (partial,), finish, kept=f"sort_array({ordered})" if has_order else name
    )


def _finish(call: CallParts, name: str, fields: dict[str, str], has_order: bool) -> str:
    """The call over kept values."""
    present = f"{name} IS NOT NULL"
    if call.function in ("collect_list", "first", "last"):
        keys = [(each.sql.removeprefix(f"{name}."), each) for each in call.orders]
        keys += [(_AT, Order(_AT))] if _AT in fields else []
        keys += [("v0", Order("v0"))] if has_order else []
        values = f"collect_list({name}){filtered(present)}"
        return picked(
            call.function, f"array_sort({values}, {comparator(keys)})" if keys else values
        )
    if call.function == "collect_set":
        values = call.sql(present)
        return f"sort_array({values})" if has_order else values
    if call.function == "listagg" and not call.orders:
        order = [Order(f"{name}.{_AT}")] if _AT in fields else []
        return replace(call, orders=(*order, Order(f"{name}.v0"))).sql(present)
    if call.function == "mode" and len(call.values) == 1:
        # Of several values that come as often, Spark gives any; the least is as good.
        return replace(call, values=(*call.values, "true")).sql(present)
    return call.sql(present)
