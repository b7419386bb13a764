"""Lookup joins: each row with the matching rows of a lookup table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.engine.functions.clock_reads import refuse_clock_reads
from resurgence.engine.operators.base import OperatorContext, TransparentOperator
from resurgence.engine.operators.sql_places import places
from resurgence.graph.specs.lookup_join import LookupJoinSpec

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


class LookupJoinOperator(TransparentOperator):
    """A join with the table as of the epoch. Spark chooses the strategy by the table's size."""

    spec: LookupJoinSpec

    def __init__(
        self, spec: LookupJoinSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        self.spec = spec
        self.table = context.lookups[spec.table.name]
        with places(spec.on.position):
            self.shape = self.apply(self.input_shapes)
            refuse_clock_reads(self.shape, spec.on.position)

    def open(self, run: EpochRun) -> None:
        """Read the table if it is due. It does not change during an epoch."""
        if self.table.is_due(run.epoch, run.began_at):
            run.enter(self)
            self.table.read(run.epoch, run.began_at)

    def apply(self, inputs: Sequence[DataFrame]) -> DataFrame:
        (rows,) = inputs
        spec = self.spec
        found = self.table.rows.selectExpr(*(f"{each.sql} AS `{each.name}`" for each in spec.found))
        if spec.scalar is None:
            return rows.join(found, F.expr(spec.on.sql), spec.join)
        tables: dict[str, Any] = {"rows": rows, "found": found}
        scalar = f"(SELECT {spec.scalar.sql} FROM {{found}} WHERE {spec.on.sql})"
        return rows.sparkSession.sql(
            f"SELECT *, {scalar} AS `{spec.scalar.name}` FROM {{rows}}", **tables
        )
