"""Queries over the rows of closed windows. A window emits all its rows in one epoch, so these
queries need no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from resurgence.engine.functions.clock_reads import refuse_clock_reads
from resurgence.engine.operators.base import OperatorContext, TransparentOperator
from resurgence.engine.operators.sql_places import places
from resurgence.graph.specs.closed_query import ClosedQuerySpec


class ClosedQueryOperator(TransparentOperator):
    """A batch query over the rows of an epoch."""

    spec: ClosedQuerySpec

    def __init__(
        self, spec: ClosedQuerySpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        self.spec = spec
        with places(spec.position):
            self.shape = self.apply(self.input_shapes)
            refuse_clock_reads(self.shape, spec.position)

    def apply(self, inputs: Sequence[DataFrame]) -> DataFrame:
        return batch_query(self.context.spark, self.spec.sql, inputs)


def batch_query(spark: SparkSession, sql: str, inputs: Sequence[DataFrame]) -> DataFrame:
    """Run a query over DataFrames, which it references as `{input_0}`, `{input_1}`, …."""
    named: dict[str, Any] = {f"input_{number}": rows for number, rows in enumerate(inputs)}
    return spark.sql(sql, **named)
