"""UNION ALL."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pyspark.sql import DataFrame

from resurgence.engine.functions.clock_reads import refuse_clock_reads
from resurgence.engine.operators.base import OperatorContext, TransparentOperator
from resurgence.graph.specs.union import UnionSpec


class UnionOperator(TransparentOperator):
    """All rows, under the column names of the first input, each column in its widest type."""

    def __init__(
        self, spec: UnionSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        self.spec = spec
        self.shape = self.apply(self.input_shapes)
        refuse_clock_reads(self.shape, None)

    def apply(self, inputs: Sequence[DataFrame]) -> DataFrame:
        return functools.reduce(DataFrame.union, inputs)
