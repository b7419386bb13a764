"""Aggregates over a changelog that can be computed from net values: what insertions add, retractions
subtract. That is exact for counts and for sums of integers and decimals, and for nothing else: a
floating-point sum would drift, and a maximum cannot be subtracted.

The rows have `CHANGE`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import DecimalType, IntegralType

from resurgence.engine.operators.aggregates.aggregate_plan import AggregatePlan, Partial, type_of
from resurgence.engine.operators.aggregates.planner import decimal_quotient
from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.values import CHANGE
from resurgence.sql.functions.aggregates import Partials, aggregate_function

_WIDE = "DECIMAL(38,0)"
"""The sum of integers of which an average is computed."""


def rows_of_group(name: str) -> Partial:
    """Return the partial that counts the rows of a group."""
    return _net_count(name, [])


def net_aggregate(call: AggregateCall, name: str, rows: DataFrame) -> AggregatePlan | None:
    """Plan an aggregate call over a changelog, with state columns that begin with `name`; None if
    it has no exact net value. Of `rows`, only the types are used.
    """
    known = aggregate_function(call.function)
    if call.is_distinct or call.order_by or known.partials not in _PLANNED:
        return None
    columns = [f"{name}_in{index}" for index in range(len(call.arguments))]
    inputs = [f"{sql} AS {column}" for sql, column in zip(call.arguments, columns, strict=True)]
    conditions = [f"{column} IS NOT NULL" for column in columns]
    if known.name == "count_if":
        conditions = columns
    if call.condition is not None:
        inputs.append(f"{call.condition} AS {name}_if")
        conditions.append(f"{name}_if")
    if known.partials is Partials.COUNT:
        return AggregatePlan(tuple(inputs), (_net_count(name, conditions),), name)
    if known.name not in ("sum", "avg"):
        return None
    kind = type_of(rows, call.arguments[0])
    if not isinstance(kind, DecimalType | IntegralType):
        return None
    is_wide = known.name == "avg" and isinstance(kind, IntegralType)
    value = f"CAST({columns[0]} AS {_WIDE})" if is_wide else columns[0]
    typed = rows.selectExpr(*inputs)
    result = type_of(typed, f"sum({value})").simpleString()
    added = f"coalesce(sum({value}) FILTER (WHERE {_all([*conditions, f'{CHANGE} > 0'])}), 0)"
    taken = f"coalesce(sum({value}) FILTER (WHERE {_all([*conditions, f'{CHANGE} < 0'])}), 0)"
    total = Partial(
        f"{name}_sum",
        f"CAST({added} - {taken} AS {result})",
        f"CAST(sum({name}_sum) AS {result})",
        f"CAST({{a}} + {{b}} AS {result})",
    )
    count = _net_count(f"{name}_count", conditions)
    finish = total.name
    if is_wide:
        finish = f"CAST({total.name} AS DOUBLE) / {count.name}"
    elif known.name == "avg":
        mean = type_of(typed, f"avg({value})").simpleString()
        quotient = decimal_quotient(total.name, count.name, result, mean, typed)
        finish = f"CAST({quotient} AS {mean})"
    return AggregatePlan(
        tuple(inputs), (total, count), f"CASE WHEN {count.name} > 0 THEN {finish} END"
    )


_PLANNED = (Partials.COUNT, Partials.SUM, Partials.AVERAGE)


def _net_count(name: str, conditions: list[str]) -> Partial:
    chosen = f" FILTER (WHERE {_all(conditions)})" if conditions else ""
    make = f"CAST(coalesce(sum({CHANGE}){chosen}, 0) AS BIGINT)"
    return Partial(name, make, f"sum({name})", "{a} + {b}")


def _all(conditions: list[str]) -> str:
    return " AND ".join(conditions)
