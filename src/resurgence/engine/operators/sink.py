"""Sinks: stage the rows of an epoch, to be committed when it is sealed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from resurgence.connectors.contract import StagedOutput
from resurgence.connectors.exact_rows import net_changes
from resurgence.connectors.registry import make_sink
from resurgence.engine.operators.base import (
    OperatorContext,
    OperatorState,
    Rows,
    TransparentOperator,
)
from resurgence.graph.specs.sink import SinkSpec
from resurgence.state.records import STAGED, TableCheckpoint, TableKind

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


class SinkOperator(TransparentOperator):
    """A sink of a running pipeline."""

    spec: SinkSpec

    def __init__(
        self, spec: SinkSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        self.spec = spec
        self.sink = make_sink(spec, context.state_url, context.paths.job)
        self.shape = self.input_shapes[0]

    def apply(self, inputs: Sequence[DataFrame]) -> DataFrame:
        return inputs[0]

    def stage(self, run: EpochRun) -> None:
        run.enter(self)
        written = run.rows_out.get(self.id, 0)
        left = None if self.spec.limit is None else self.spec.limit - written
        rows = run.rows(self.id)
        if rows is None or left == 0:
            run.effects.staged[self.id] = StagedOutput(planned_at=run.time)
            return
        if run.graph.reads_changes(self.id):
            rows = net_changes(rows)
        plan = run.plan
        staged = self.sink.stage(rows, plan.job, run.epoch, plan.generation)
        staged = staged.model_copy(update={"planned_at": run.time})
        # Spark's own limit would stop reading the sources early, and observations would be
        # incomplete.
        run.effects.staged[self.id] = staged if left is None else staged.first(left)
        run.ran_over_inputs(self)

    def checkpoint(self, run: EpochRun) -> OperatorState:
        values = run.effects.staged[self.id].model_dump(mode="json")
        staged = TableCheckpoint(kind=TableKind.GLOBAL, values=values)
        return OperatorState({STAGED: staged}, place=self.spec.place)

    def probe(self, upstream: Rows) -> Iterator[DataFrame]:
        rows = self.probe_output(upstream)
        if rows is not None:
            yield self.sink.rehearsed(rows)
