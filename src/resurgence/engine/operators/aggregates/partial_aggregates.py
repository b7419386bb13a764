"""Aggregates that are added up before they are kept: a row for each group and epoch in the place of
all its rows, and one for each group when files are merged.

That is done with those only whose parts come to the same, to the last bit, in whatever order they
are added up: counts, sums of whole numbers and decimals, extremes. What the parts come to is then
what was given in the epoch before, however they were merged since. Of all others the rows are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from resurgence.engine.operators.aggregates.aggregate_plan import Partial
from resurgence.engine.operators.aggregates.planner import plan_aggregate
from resurgence.engine.tables.exact_rows import quoted
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.sql.functions.aggregates import Trait, aggregate_function

_ROWS = "__rows"


@dataclass(frozen=True)
class PartialAggregates:
    """An aggregation over parts in the place of rows."""

    operator: UpdatingQuerySpec
    """What it comes to over the parts."""
    keys: tuple[str, ...]
    """As SQL text."""
    partials: tuple[Partial, ...]
    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    """The columns that are read, first by name, then for each partial."""

    def made(self, rows: DataFrame) -> DataFrame:
        """The parts of an epoch's rows: the keys and the partials."""
        columns, taken = self.inputs
        made = [F.expr(f"{each.make} AS {each.name}") for each in self.partials]
        made.append(F.count(F.lit(1)).alias(_ROWS))
        time = [f"`{EVENT_TIME}`"] if self.operator.keep_micros is not None else []
        return (
            rows.selectExpr(*columns, *time)
            .selectExpr(*self.keys, *taken, *time)
            .groupBy(*self.keys, *time)
            .agg(*made)
            # Without keys Spark makes a row of no rows.
            .where(f"{_ROWS} > 0")
            .drop(_ROWS)
        )

    @property
    def merges(self) -> list[str]:
        """How many parts of a group become one."""
        return [f"{each.merge} AS {each.name}" for each in self.partials]


def partial_aggregates(operator: UpdatingQuerySpec, rows: DataFrame) -> PartialAggregates | None:
    """The same operator over parts; None if its rows have to be kept."""
    given = operator.inputs[0]
    if operator.aggregates is None or given.is_updating:
        return None
    if not all(aggregate_function(each.function).has(Trait.EXACT) for each in operator.aggregates):
        return None
    columns = tuple(f"{each.sql} AS {quoted(each.name)}" for each in given.columns)
    named = rows.selectExpr(*columns)
    plans = [
        plan_aggregate(call, f"__part_{number}", named)
        for number, call in enumerate(operator.aggregates)
    ]
    if any(each.kept is not None for each in plans):
        return None
    keys = tuple(quoted(each) for each in given.keys)
    partials = tuple(each for plan in plans for each in plan.partials)
    parts = [*given.keys, *(each.name for each in partials)]
    finished = [
        f"{plan.finish} AS {quoted(call.name)}"
        for plan, call in zip(plans, operator.aggregates, strict=True)
    ]
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    merges = [f"{each.merge} AS {each.name}" for each in partials]
    merged = f"SELECT {', '.join([*keys, *merges])} FROM {{input_0}}{group}"
    over_parts = operator.model_copy(
        update={
            "sql": f"SELECT {', '.join([*keys, *finished])} FROM ({merged})",
            "inputs": (
                given.model_copy(
                    update={
                        "columns": tuple(Expression(name=each, sql=quoted(each)) for each in parts)
                    }
                ),
            ),
        }
    )
    found = PartialAggregates(
        operator=over_parts,
        keys=keys,
        partials=partials,
        inputs=(columns, tuple(column for plan in plans for column in plan.inputs)),
    )
    kinds = found.made(rows).schema
    return None if any(_has_floats(kinds[each.name].dataType) for each in partials) else found


def _has_floats(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_floats(kind.elementType)
    if isinstance(kind, MapType):
        return _has_floats(kind.keyType) or _has_floats(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_floats(each.dataType) for each in kind)
    return isinstance(kind, FloatType | DoubleType)
