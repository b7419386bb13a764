"""Updating aggregations over partial aggregates: state has one row per group and epoch instead of
all input rows, and one per group after files are merged.

This requires aggregates whose partials merge to the same result, to the last bit, in any order:
counts, sums of integers and decimals, extremes. Then the merged partials always reproduce the
result that the previous epoch emitted, however files were merged since. For all other aggregates
the rows are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from resurgence.connectors.exact_rows import quoted
from resurgence.engine.operators.aggregates.aggregate_plan import Partial
from resurgence.engine.operators.aggregates.planner import plan_aggregate
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.sql.functions.aggregates import Trait, aggregate_function

_ROWS = "__rows"


@dataclass(frozen=True)
class PartialAggregates:
    """An aggregation over partials instead of rows."""

    operator: UpdatingQuerySpec
    """The same operator, over the partials."""
    keys: tuple[str, ...]
    """As SQL text."""
    partials: tuple[Partial, ...]
    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    """The columns that are read, by name, then those that the partials read."""

    def aggregated(self, rows: DataFrame) -> DataFrame:
        """Return the keys and partials of an epoch's rows."""
        columns, arguments = self.inputs
        made = [F.expr(f"{each.make} AS {each.name}") for each in self.partials]
        made.append(F.count(F.lit(1)).alias(_ROWS))
        time = [f"`{EVENT_TIME}`"] if self.operator.keep_micros is not None else []
        return (
            rows.selectExpr(*columns, *time)
            .selectExpr(*self.keys, *arguments, *time)
            .groupBy(*self.keys, *time)
            .agg(*made)
            # Without keys Spark returns one row for an empty input.
            .where(f"{_ROWS} > 0")
            .drop(_ROWS)
        )

    @property
    def merges(self) -> list[str]:
        """SQL that merges the partials of a group into one."""
        return [f"{each.merge} AS {each.name}" for each in self.partials]


def partial_aggregates(operator: UpdatingQuerySpec, rows: DataFrame) -> PartialAggregates | None:
    """Return the operator over partials; None if its rows must be stored."""
    source = operator.inputs[0]
    if operator.aggregates is None or source.is_updating:
        return None
    if not all(aggregate_function(each.function).has(Trait.EXACT) for each in operator.aggregates):
        return None
    columns = tuple(f"{each.sql} AS {quoted(each.name)}" for each in source.columns)
    named = rows.selectExpr(*columns)
    plans = [
        plan_aggregate(call, f"__part_{number}", named)
        for number, call in enumerate(operator.aggregates)
    ]
    if any(each.buffer is not None for each in plans):
        return None
    keys = tuple(quoted(each) for each in source.keys)
    partials = tuple(each for plan in plans for each in plan.partials)
    columns_in_state = [*source.keys, *(each.name for each in partials)]
    finished = [
        f"{plan.finish} AS {quoted(call.name)}"
        for plan, call in zip(plans, operator.aggregates, strict=True)
    ]
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    merges = [f"{each.merge} AS {each.name}" for each in partials]
    merged = f"SELECT {', '.join([*keys, *merges])} FROM {{input_0}}{group}"
    over_partials = operator.model_copy(
        update={
            "sql": f"SELECT {', '.join([*keys, *finished])} FROM ({merged})",
            "inputs": (
                source.model_copy(
                    update={
                        "columns": tuple(
                            Expression(name=each, sql=quoted(each)) for each in columns_in_state
                        )
                    }
                ),
            ),
        }
    )
    found = PartialAggregates(
        operator=over_partials,
        keys=keys,
        partials=partials,
        inputs=(columns, tuple(column for plan in plans for column in plan.inputs)),
    )
    kinds = found.aggregated(rows).schema
    return None if any(_has_floats(kinds[each.name].dataType) for each in partials) else found


def _has_floats(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_floats(kind.elementType)
    if isinstance(kind, MapType):
        return _has_floats(kind.keyType) or _has_floats(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_floats(each.dataType) for each in kind)
    return isinstance(kind, FloatType | DoubleType)
