"""The plan of one aggregate: its partials in state, and its result over them. Also the facts that
the planner needs from Spark: types, and which expressions are constant.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StructType,
    VariantType,
)

SPREAD_ABOVE = 0.2
"""Groups per row in the previous epoch, above which grouping twice costs more than shuffling all
rows.
"""


@dataclass(frozen=True)
class Partial:
    """A column of state: SQL that makes it from rows, and SQL that merges many into one."""

    name: str
    make: str
    merge: str
    plus: str | None = None
    """SQL that merges two, named `{a}` and `{b}`; None if that cannot be done in constant space, or
    not with the same bits every time.
    """


@dataclass(frozen=True)
class AggregatePlan:
    """One aggregate: the columns it reads from the input, its partials in state, and the result
    over them.
    """

    inputs: tuple[str, ...]
    partials: tuple[Partial, ...]
    finish: str
    """An expression over the partials; with `buffer`, an aggregate over the buffered values."""
    buffer: str | None = None
    """The values in the single partial, an array of structs, in the order in which they are
    aggregated. In `finish`, the partial's name refers to one of them, or to null.
    """


def type_of(rows: DataFrame, expression: str) -> DataType:
    """Return the type of an expression, aggregate or not."""
    return rows.selectExpr(f"{expression} AS value").schema[0].dataType


def is_constant(rows: DataFrame, expression: str) -> bool:
    """Return whether an expression has the same value in every row, as some arguments must."""
    # The expression knows, but Spark's Python API does not expose it.
    plan = rows.selectExpr(f"{expression} AS value")._jdf.queryExecution().analyzed()
    return bool(plan.expressions().apply(0).child().foldable())


def is_ordered(kind: DataType) -> bool:
    """Return whether values of a type can be compared."""
    if isinstance(kind, ArrayType):
        return is_ordered(kind.elementType)
    if isinstance(kind, StructType):
        return all(is_ordered(each.dataType) for each in kind)
    return not isinstance(kind, MapType | VariantType | CalendarIntervalType)
