"""Plans aggregates as mergeable partials: the state of an epoch, the merge, and the result.

The result equals that of Spark's own function over all rows at once, type included. Where Spark's
result depends on the order of rows (`first`, `last`, `collect_list`), it is the result over rows in
event-time order. Values of aggregates that cannot be merged are buffered (`value_buffers`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import DecimalType, NumericType, StringType

from resurgence.engine.operators.aggregates.aggregate_plan import (
    AggregatePlan,
    Partial,
    is_ordered,
    type_of,
)
from resurgence.engine.operators.aggregates.moments import (
    COVARIANCES,
    VARIANCES,
    covariance_make,
    covariance_merge,
    covariance_plus,
    variance_make,
    variance_merge,
    variance_plus,
)
from resurgence.engine.operators.aggregates.value_buffers import buffer_values
from resurgence.graph.aggregate_call import AggregateCall, SortOrder
from resurgence.graph.values import EVENT_TIME
from resurgence.sql.functions.aggregate_sql import filter_clause, null_filter, spark_sql
from resurgence.sql.functions.aggregates import Partials, Trait, aggregate_function

_GUARD_DIGITS = 12
"""Digits that a quotient needs beyond those of the result to be rounded correctly, and the digits
of the highest count.
"""

PlannedPartials = tuple[tuple[Partial, ...], str]
"""Partials, and the result over them."""


@dataclass(frozen=True)
class _Columns:
    """The columns that a mergeable call reads from the input."""

    name: str
    values: tuple[str, ...]
    condition: str | None
    """The boolean column of the FILTER clause."""
    rows: DataFrame
    """Of these columns; only their types are used."""

    def chosen(self, *conditions: str) -> str:
        """Return the FILTER clause of the call."""
        return filter_clause(*conditions, self.condition)

    def present(self) -> str:
        """Return the FILTER clause that also omits rows in which a value is null."""
        return self.chosen(*(f"{each} IS NOT NULL" for each in self.values))


def plan_aggregate(call: AggregateCall, name: str, rows: DataFrame) -> AggregatePlan:
    """Plan one aggregate call, with state columns that begin with `name`. Of `rows`, only the types
    are used.
    """
    known = aggregate_function(call.function)
    if not call.is_user_defined:
        # Let Spark analyze the call itself, so that an error in it is reported as the user's.
        rows.selectExpr(f"{spark_sql(call)} AS value")
        is_distinct = call.is_distinct and (
            not known.has(Trait.IGNORES_DUPLICATES) or _returns_several(call, known.partials)
        )
        call = call.model_copy(update={"function": known.name, "is_distinct": is_distinct})
        if not _can_merge(call, known.partials, rows):
            return buffer_values(call, name, rows)
    columns = tuple(f"{name}_in{index}" for index in range(len(call.arguments)))
    inputs = [f"{sql} AS {column}" for sql, column in zip(call.arguments, columns, strict=True)]
    if known.partials is Partials.BY_EVENT_TIME:
        inputs.append(f"unix_micros(`{EVENT_TIME}`) AS {name}_at")
    if call.condition is not None:
        inputs.append(f"{call.condition} AS {name}_if")
    read = _Columns(
        name=name,
        values=columns,
        condition=f"{name}_if" if call.condition is not None else None,
        rows=rows.selectExpr(*inputs, "1 AS one"),
    )
    plan = _values if known.partials is None else _PARTIALS[known.partials]
    partials, finish = plan(call, read)
    return AggregatePlan(tuple(inputs), partials, finish)


def deterministic_sql(call: AggregateCall, rows: DataFrame) -> str:
    """Return the call in Spark's batch SQL, with a result that does not depend on the order of
    rows: ties are broken as over a window. Of `rows`, only the types are used.
    """
    known = aggregate_function(call.function)
    if call.is_user_defined or not call.arguments:
        return spark_sql(call)
    value, *rest = call.arguments
    if known.partials is Partials.EXTREME and len(rest) == 1:
        pair = f"named_struct('by', {rest[0]}, 'value', {value})"
        chosen = filter_clause(call.condition, f"{rest[0]} IS NOT NULL")
        if is_ordered(type_of(rows, pair)):
            return f"{known.name.removesuffix('_by')}({pair}){chosen}.value"
    if not is_ordered(type_of(rows, value)):
        return spark_sql(call)
    if known.name == "collect_set" or (known.name == "collect_list" and call.is_distinct):
        return spark_sql(call) if call.order_by else f"sort_array({spark_sql(call)})"
    if known.name == "listagg" and call.is_distinct:
        return _distinct_text(call) or spark_sql(call)
    if known.name == "mode" and not rest and not call.order_by:
        call = call.model_copy(update={"arguments": (value, "true")})
    elif known.has(Trait.ORDER_BY) and (not call.is_distinct or not call.order_by):
        call = call.model_copy(update={"order_by": (*call.order_by, SortOrder(sql=value))})
    return spark_sql(call)


def _distinct_text(call: AggregateCall) -> str | None:
    """Return listagg(DISTINCT x) as a set, because Spark cannot call it beside other DISTINCT
    aggregates. None if it is ordered by something else.
    """
    value, *separator = call.arguments
    order = call.order_by[0] if call.order_by else SortOrder(sql=value)
    if len(call.order_by) > 1 or order.sql != value:
        return None
    values = f"collect_set({value}){filter_clause(call.condition)}"
    text = f"array_join(sort_array({values}, {not order.descending}), {(*separator, repr(''))[0]})"
    return f"IF(size({values}) > 0, {text}, NULL)"


def _can_merge(call: AggregateCall, partials: Partials | None, rows: DataFrame) -> bool:
    """Return whether the call has mergeable partials."""
    if partials is None or call.order_by or call.is_distinct:
        return False
    if call.function == "avg":
        # Spark sums intervals as intervals, and divides them by special rules.
        return isinstance(type_of(rows, call.arguments[0]), NumericType | StringType)
    return not _returns_several(call, partials)


def _returns_several(call: AggregateCall, partials: Partials | None) -> bool:
    """Whether it is max_by() or min_by() with a third argument, which return that many values."""
    return partials is Partials.EXTREME and len(call.arguments) > 2


def _count(call: AggregateCall, columns: _Columns) -> PlannedPartials:
    function = "count_if" if call.function == "count_if" else "count"
    make = f"{function}({', '.join(columns.values) or '1'}){columns.chosen()}"
    return (Partial(columns.name, make, f"sum({columns.name})", "{a} + {b}"),), columns.name


def _sum(_call: AggregateCall, columns: _Columns) -> PlannedPartials:
    # A sum of sums would widen a decimal again; the state has the type of the first sum.
    name, make = columns.name, f"sum({columns.values[0]})"
    kind = _type_text(columns.rows, make)
    merge = f"CAST(sum({name}) AS {kind})"
    return (Partial(name, f"{make}{columns.chosen()}", merge, _sum_of_two(kind)),), name


def _result(call: AggregateCall, columns: _Columns) -> PlannedPartials:
    function, name = call.function, columns.name
    make = f"{function}({columns.values[0]}){columns.chosen()}"
    return (Partial(name, make, f"{function}({name})", _OF_TWO[function]),), name


def _average(call: AggregateCall, columns: _Columns) -> PlannedPartials:
    if call.function == "avg":
        return _mean(columns.name, columns.values[0], columns.chosen(), columns.rows)
    value = columns.values[1 if call.function == "regr_avgx" else 0]
    return _mean(columns.name, f"CAST({value} AS DOUBLE)", columns.present(), columns.rows)


def _variance(call: AggregateCall, columns: _Columns) -> PlannedPartials:
    name = columns.name
    make = variance_make(f"CAST({columns.values[0]} AS DOUBLE)", columns.chosen())
    partial = Partial(name, make, variance_merge(name), variance_plus())
    return (partial,), VARIANCES[call.function].format(p=name)


def _covariance(call: AggregateCall, columns: _Columns) -> PlannedPartials:
    name = columns.name
    y, x = (f"CAST({each} AS DOUBLE)" for each in columns.values)
    make = covariance_make(y, x, columns.present())
    partial = Partial(name, make, covariance_merge(name), covariance_plus())
    return (partial,), COVARIANCES[call.function].format(p=name)


def _extreme(call: AggregateCall, columns: _Columns) -> PlannedPartials:
    by = columns.values[1]
    chosen = columns.chosen(f"{by} IS NOT NULL")
    return _at_extreme(call.function.removesuffix("_by"), by, columns, chosen)


def _by_event_time(call: AggregateCall, columns: _Columns) -> PlannedPartials:
    skips_nulls = null_filter(call) is not None
    chosen = columns.chosen(*([f"{columns.values[0]} IS NOT NULL"] if skips_nulls else []))
    pick = "min" if call.function == "first" else "max"
    return _at_extreme(pick, f"{columns.name}_at", columns, chosen)


def _values(call: AggregateCall, columns: _Columns) -> PlannedPartials:
    """Plan a user's aggregate, which cannot be merged: values are buffered until the window closes.
    Like Spark's aggregates of several arguments it omits rows where one of them is null.
    """
    buffers = tuple(
        Partial(
            f"{columns.name}_{index}",
            f"collect_list({column}){columns.present()}",
            f"flatten(collect_list({columns.name}_{index}))",
        )
        for index, column in enumerate(columns.values)
    )
    return buffers, f"{call.function}({', '.join(each.name for each in buffers)})"


_OF_TWO = {
    "min": "least({a}, {b})",
    "max": "greatest({a}, {b})",
    "bool_and": "coalesce({a} AND {b}, {a}, {b})",
    "bool_or": "coalesce({a} OR {b}, {a}, {b})",
    "bit_and": "coalesce({a} & {b}, {a}, {b})",
    "bit_or": "coalesce({a} | {b}, {a}, {b})",
    "bit_xor": "coalesce({a} ^ {b}, {a}, {b})",
}
"""The functions that merge their own results, over two of them. A null is no value."""


def _sum_of_two(kind: str) -> str:
    return f"coalesce(CAST({{a}} + {{b}} AS {kind}), {{a}}, {{b}})"


_PARTIALS: dict[Partials, Callable[[AggregateCall, _Columns], PlannedPartials]] = {
    Partials.COUNT: _count,
    Partials.SUM: _sum,
    Partials.AVERAGE: _average,
    Partials.RESULT: _result,
    Partials.VARIANCE: _variance,
    Partials.COVARIANCE: _covariance,
    Partials.EXTREME: _extreme,
    Partials.BY_EVENT_TIME: _by_event_time,
}


def _at_extreme(pick: str, by: str, columns: _Columns, chosen: str) -> PlannedPartials:
    """Plan the value at the least or greatest `by`; of several, the least or greatest value."""
    name, value = columns.name, columns.values[0]
    pair = f"named_struct('by', {by}, 'value', {value})"
    if is_ordered(type_of(columns.rows, pair)):
        partial = Partial(name, f"{pick}({pair}){chosen}", f"{pick}({name})", _OF_TWO[pick])
    else:
        partial = Partial(name, f"{pick}_by({pair}, {by}){chosen}", f"{pick}_by({name}, {name}.by)")
    return (partial,), f"{name}.value"


def _mean(name: str, value: str, condition: str, rows: DataFrame) -> PlannedPartials:
    # Spark sums decimals as decimals and everything else as doubles.
    exact = isinstance(rows.selectExpr(value).schema[0].dataType, DecimalType)
    addend = value if exact else f"CAST({value} AS DOUBLE)"
    kind = _type_text(rows, f"sum({addend})")
    result = _type_text(rows, f"avg({value})")
    total = Partial(
        f"{name}_sum",
        f"sum({addend}){condition}",
        f"CAST(sum({name}_sum) AS {kind})",
        _sum_of_two(kind),
    )
    count = Partial(
        f"{name}_count", f"count({value}){condition}", f"sum({name}_count)", "{a} + {b}"
    )
    quotient = f"{name}_sum / {name}_count"
    if exact:
        quotient = decimal_quotient(f"{name}_sum", f"{name}_count", kind, result, rows)
    mean = f"CASE WHEN {name}_count > 0 THEN CAST({quotient} AS {result}) END"
    return (total, count), mean


def decimal_quotient(total: str, count: str, kind: str, result: str, rows: DataFrame) -> str:
    """Return SQL that divides a decimal by a count, to all the digits of the result.

    Spark's own average divides exactly, but its `/` returns fewer digits for wide decimals. Then
    whole and fraction are divided separately and concatenated as text: their sum could be too wide
    as well.
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
