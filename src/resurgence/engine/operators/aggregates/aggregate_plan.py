"""What is kept of an aggregate and how its result is made of that; and what has to be asked of
Spark to plan it: types, and which expressions are constant.
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
    """An expression over the partials; with `kept`, an aggregate over the values in it."""
    kept: str | None = None
    """The values that the one partial holds as an array of structs, in the order in which they are
    aggregated. In `finish`, the partial's name stands for one of them, or for null.
    """


def type_of(rows: DataFrame, expression: str) -> DataType:
    """The type of an expression, aggregate or not."""
    return rows.selectExpr(f"{expression} AS value").schema[0].dataType


def is_constant(rows: DataFrame, expression: str) -> bool:
    """Whether an expression has one value, whatever the row: some arguments must."""
    # Spark asks the expression itself; nothing in its Python API does.
    plan = rows.selectExpr(f"{expression} AS value")._jdf.queryExecution().analyzed()
    return bool(plan.expressions().apply(0).child().foldable())


def is_ordered(kind: DataType) -> bool:
    """Whether values of a type can be compared."""
    if isinstance(kind, ArrayType):
        return is_ordered(kind.elementType)
    if isinstance(kind, StructType):
        return all(is_ordered(each.dataType) for each in kind)
    return not isinstance(kind, MapType | VariantType | CalendarIntervalType)
