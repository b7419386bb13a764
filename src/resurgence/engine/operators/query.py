"""Filters and projections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.engine.functions.clock_reads import free_expressions
from resurgence.engine.operators.base import OperatorContext, TransparentOperator
from resurgence.engine.operators.sql_places import SqlFragment, places
from resurgence.graph.specs.query import QuerySpec
from resurgence.spark_plans.projection import Projection


class QueryOperator(TransparentOperator):
    """An optional filter, then a projection."""

    spec: QuerySpec

    def __init__(
        self, spec: QuerySpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        (rows,) = self.input_shapes
        select = free_expressions(spec.select, rows)
        where = spec.where and free_expressions((spec.where,), rows)[0]
        self.spec = spec.model_copy(update={"select": select, "where": where})
        self._where: SparkColumn | None = None
        self._select = Projection(*(f"{each.sql} AS `{each.name}`" for each in select))
        with places(None, self._parts):
            self.shape = self.apply(self.input_shapes)

    def apply(self, inputs: Sequence[DataFrame]) -> DataFrame:
        (rows,) = inputs
        if self.spec.where is not None:
            if self._where is None:
                self._where = F.expr(self.spec.where.sql)
            rows = rows.where(self._where)
        return self._select.of(rows)

    def _parts(self) -> Iterator[SqlFragment]:
        (rows,) = self.input_shapes
        if self.spec.where is not None:
            # A filter requires a boolean; a projection accepts any type.
            condition = f"count(*) FILTER (WHERE {self.spec.where.sql})"
            yield SqlFragment(rows, condition, self.spec.where.position)
        for each in self.spec.select:
            yield SqlFragment(rows, each.sql, each.position)
