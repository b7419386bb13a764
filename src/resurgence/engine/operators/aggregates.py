"""Aggregates as mergeable partials: what is kept per epoch, how two of them become one, what the
user sees.

The answer is the one that Spark's own function gives over all rows at once, type included.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import DecimalType

from resurgence.graph.model import AggregateCall

_GUARD_DIGITS = 12
"""Digits that a quotient needs beyond those of the result to be rounded right, and the digits of
the highest count.
"""


@dataclass(frozen=True)
class Partial:
    """A column of state: how it is made from rows, and how many of it become one."""

    name: str
    make: str
    merge: str


@dataclass(frozen=True)
class AggregatePlan:
    """One aggregate: the columns it takes from the input, the partials it keeps, and the result
    over them.
    """

    inputs: tuple[str, ...]
    partials: tuple[Partial, ...]
    finish: str


def plan_aggregate(call: AggregateCall, name: str, rows: DataFrame) -> AggregatePlan:
    """How one aggregate call is kept, in columns that begin with `name`. `rows` is only asked
    for types.
    """
    columns = [f"{name}_in{index}" for index in range(len(call.arguments))]
    inputs = [f"{sql} AS {column}" for sql, column in zip(call.arguments, columns, strict=True)]
    condition = ""
    if call.condition is not None:
        inputs.append(f"{call.condition} AS {name}_if")
        condition = f" FILTER (WHERE {name}_if)"
    partials, finish = _partials(
        call.function.lower(), name, columns, condition, rows.selectExpr(*inputs, "1 AS one")
    )
    return AggregatePlan(tuple(inputs), partials, finish.replace("{function}", call.function))


def _partials(
    function: str, name: str, columns: list[str], condition: str, rows: DataFrame
) -> tuple[tuple[Partial, ...], str]:
    arguments = ", ".join(columns)
    if function == "count":
        return (Partial(name, f"count({arguments or '1'}){condition}", f"sum({name})"),), name
    if function in ("min", "max"):
        return (Partial(name, f"{function}({arguments}){condition}", f"{function}({name})"),), name
    if function == "sum":
        # The sum of sums would widen a decimal again; the state keeps the type of the first sum.
        kind = _type_of(rows, f"sum({arguments})")
        return (
            Partial(name, f"sum({arguments}){condition}", f"CAST(sum({name}) AS {kind})"),
        ), name
    if function == "avg":
        return _average(name, arguments, condition, rows)
    # A user's aggregate cannot be merged: it keeps its values, and is computed when the window
    # closes.
    # Like Spark's aggregates of several arguments it leaves out rows where one of them is null.
    present = " AND ".join([f"{column} IS NOT NULL" for column in columns])
    chosen = f" FILTER (WHERE {present}{f' AND {name}_if' if condition else ''})"
    kept = tuple(
        Partial(
            f"{name}_{index}",
            f"collect_list({column}){chosen}",
            f"flatten(collect_list({name}_{index}))",
        )
        for index, column in enumerate(columns)
    )
    return kept, f"{{function}}({', '.join(each.name for each in kept)})"


def _average(
    name: str, value: str, condition: str, rows: DataFrame
) -> tuple[tuple[Partial, ...], str]:
    # Spark adds decimals as decimals and everything else as doubles.
    exact = isinstance(rows.selectExpr(value).schema[0].dataType, DecimalType)
    addend = value if exact else f"CAST({value} AS DOUBLE)"
    kind = _type_of(rows, f"sum({addend})")
    result = _type_of(rows, f"avg({value})")
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
    kind = rows.selectExpr(f"{expression} AS value").schema[0].dataType
    assert isinstance(kind, DecimalType)
    return kind.scale


def _type_of(rows: DataFrame, expression: str) -> str:
    return rows.selectExpr(f"{expression} AS value").schema[0].dataType.simpleString()
