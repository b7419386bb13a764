"""first() and last() over append-only rows without a window: the least or greatest candidate, which is
all that a group stores. A candidate is a value below what the rows are ordered by.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from resurgence.engine.operators.aggregates.aggregate_plan import (
    AggregatePlan,
    Partial,
    is_ordered,
    type_of,
)
from resurgence.graph.aggregate_call import AggregateCall
from resurgence.sql.functions.aggregate_sql import filter_clause, null_filter
from resurgence.sql.functions.aggregates import aggregate_function


def first_or_last(call: AggregateCall, name: str, rows: DataFrame) -> AggregatePlan | None:
    """Plan a call of first() or last(), with state columns that begin with `name`; None if its order
    is not that of Spark's comparison of structs. Of `rows`, only the types are used.
    """
    is_ascending = all(each.nulls_first and not each.descending for each in call.order_by)
    if call.is_distinct or not is_ascending:
        return None
    compared = [*(each.sql for each in call.order_by), call.arguments[0]]
    columns = [f"{name}_in{number}" for number in range(len(compared))]
    inputs = [f"{sql} AS {column}" for sql, column in zip(compared, columns, strict=True)]
    if call.condition is not None:
        inputs.append(f"{call.condition} AS {name}_if")
    fields = (f"'{column}', {column}" for column in columns)
    candidate = f"named_struct({', '.join(fields)})"
    if not is_ordered(type_of(rows.selectExpr(*inputs), candidate)):
        return None
    value = columns[-1]
    chosen = filter_clause(
        None if call.condition is None else f"{name}_if",
        None if null_filter(call) is None else f"{value} IS NOT NULL",
    )
    is_first = aggregate_function(call.function).name == "first"
    pick, of_two = ("min", "least") if is_first else ("max", "greatest")
    partial = Partial(
        name, f"{pick}({candidate}){chosen}", f"{pick}({name})", f"{of_two}({{a}}, {{b}})"
    )
    return AggregatePlan(tuple(inputs), (partial,), f"{name}.{value}")
