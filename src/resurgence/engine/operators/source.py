"""Sources: read a range of input per epoch, and observe its watermark and bad records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from resurgence.connectors.registry import make_source
from resurgence.engine.functions.clock_reads import free_columns
from resurgence.engine.operators.base import Operator, OperatorContext, OperatorState
from resurgence.engine.operators.source_reader import (
    Reading,
    SourceReader,
    read_shape,
    source_shape,
)
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.watermarks import END_OF_TIME, idle_watermark
from resurgence.state.load_plan import OperatorLoad
from resurgence.state.records import OFFSETS, InputRange, TableCheckpoint, TableKind

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


class SourceOperator(Operator):
    """A source of a running job."""

    spec: SourceSpec

    def __init__(
        self, spec: SourceSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        spark = context.spark
        columns = free_columns(spec.columns, read_shape(spark, spec))
        self.spec = spec.model_copy(update={"columns": columns})
        self.source = make_source(self.spec)
        self.shape = source_shape(spark, self.spec)
        self.watermark: int | None = None
        """At the end of the newest sealed epoch."""
        self._reader = SourceReader(self.spec, self.source)
        self._reading: Reading | None = None

    def restore(self, load: OperatorLoad) -> None:
        self.watermark = load.metadata.watermark

    def read(self, input_range: InputRange, time: int) -> Reading:
        """Read a range of its input; `time` is when the epoch was planned, in microseconds."""
        context = self.context
        return self._reader.read(context.spark, input_range, context.parallelism, time)

    def open(self, run: EpochRun) -> None:
        self._reading = None
        input_range = run.inputs[self.id]
        if input_range.rows:
            with run.profile.measure("planning"):
                self._reading = self.read(input_range, run.time)

    def output(self, run: EpochRun) -> DataFrame | None:
        return None if self._reading is None else self._reading.rows

    def observe(self, run: EpochRun) -> None:
        if self.id in run.effects.watermarks:
            return
        input_range, mark = run.inputs[self.id], self.watermark
        if self._reading is not None:
            seen = self._reading.seen(was_read=self.id in run.were_read)
            if seen.first_bad is not None and not self.source.drops_bad_records:
                raise self._reader.bad_record(input_range, seen, run.time)
            run.effects.bad_rows[self.id] = seen.bad_rows
            if seen.watermark is not None:
                mark = seen.watermark if mark is None else max(seen.watermark, mark)
        if input_range.idle:
            others = [
                run.watermarks_before[each.id]
                for each in run.graph.sources()
                if each.watermark is not None
                and not run.inputs[each.id].idle
                and not run.inputs[each.id].final
            ]
            mark = idle_watermark(mark, others)
        run.effects.watermarks[self.id] = END_OF_TIME if input_range.final else mark

    def checkpoint(self, run: EpochRun) -> OperatorState:
        input_range = run.inputs[self.id]
        offsets = TableCheckpoint(kind=TableKind.GLOBAL, values=input_range.end)
        return OperatorState({OFFSETS: offsets}, input=input_range, place=self.spec.place)

    def promote(self, run: EpochRun) -> None:
        self.watermark = run.effects.watermarks[self.id]
