"""The operator for all window kinds: partial aggregates are stored in a TimeTable, and a window
emits its rows when the watermark passes it.

A WindowAggregate owns the computation of its kind.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from resurgence.engine.functions.clock_reads import free_call, free_expressions
from resurgence.engine.functions.planning_time import with_planning_time
from resurgence.engine.operators.aggregates.aggregate_plan import SPREAD_ABOVE
from resurgence.engine.operators.base import (
    CompactionTask,
    Operator,
    OperatorContext,
    OperatorState,
    Rows,
)
from resurgence.engine.operators.sql_places import SqlFragment, places
from resurgence.engine.operators.windows.registry import compile_window
from resurgence.engine.operators.windows.window_aggregate import PARTIALS
from resurgence.engine.spark.empty_rows import empty_rows
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.state_writer import Written
from resurgence.engine.tables.time_table import SubtaskRows, TimeTable
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.graph.values import EVENT_TIME
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.sql.functions.aggregate_sql import spark_sql
from resurgence.state.key_groups import shuffle_partitions
from resurgence.state.load_plan import OperatorLoad

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


class WindowOperator(Operator):
    """A window of a running pipeline."""

    spec: WindowAggregateSpec
    live: LiveFiles

    def __init__(
        self, spec: WindowAggregateSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        self._by_processing_time = spec.by_processing_time
        super().__init__(spec, inputs, context)
        (rows,) = self.input_shapes
        keys = free_expressions(spec.keys, rows)
        calls = tuple(free_call(each, rows) for each in spec.aggregates)
        self.spec = spec.model_copy(update={"keys": keys, "aggregates": calls})
        with places(None, self._parts):
            self._window = compile_window(self.spec, rows, shuffle_partitions(context.parallelism))
        self._table = TimeTable(
            url=context.state_url,
            folder=context.paths.table(spec.id, PARTIALS),
            schema=self._window.schema,
            keys=self._window.hashed,
            parallelism=context.parallelism,
        )
        self.live = LiveFiles.none(context.parallelism)
        self.table_schema = self._table.checkpoint(self.live).schema_text
        self.shape = self._window.results(empty_rows(context.spark, self._window.schema))
        self._timers: tuple[int, ...] = ()
        self._groups_per_row = 0.0
        self._before: tuple[SubtaskRows, ...] | None = None
        """In an epoch with late rows: the state before it, if the window accepts late rows."""

    def _parts(self) -> Iterator[SqlFragment]:
        (rows,) = self.input_shapes
        for key in self.spec.keys:
            yield SqlFragment(rows, key.sql, key.position)
        for call in self.spec.aggregates:
            yield SqlFragment(rows, spark_sql(call), call.position)

    def timed(self, rows: DataFrame, time: int) -> DataFrame:
        if self._by_processing_time:
            rows = with_planning_time(rows, time, EVENT_TIME)
        return super().timed(rows, time)

    # ---------------------------------------------------------------- state

    def restore(self, load: OperatorLoad) -> None:
        self.live = LiveFiles(load.subtasks[PARTIALS])
        self._timers = load.metadata.timers

    def checkpoint(self, run: EpochRun) -> OperatorState:
        tables = {PARTIALS: self._table.checkpoint(run.live(self))}
        return OperatorState(tables, timers=run.effects.timers[self.id])

    def promote(self, run: EpochRun) -> None:
        super().promote(run)
        self._timers = run.effects.timers[self.id]

    def compaction(self, time: int, watermark: int | None) -> CompactionTask | None:
        replaced = self.live.small_files()
        if not replaced:
            return None
        start = self._window.open_from(watermark)
        read = self._table.read(self.context.spark, self.live, start, END_OF_TIME, replaced)
        return CompactionTask(
            replaced, functools.partial(self._table.write, self._window.merged(read))
        )

    # ---------------------------------------------------------------- an epoch

    def ingest(self, run: EpochRun) -> None:
        """Append an epoch's partials to the state."""
        run.enter(self)
        self._before = None
        window = self._window
        watermark = run.watermark_before(self.id)
        open_from = window.open_from(watermark)
        timers = self._timers
        (rows,) = self.inputs(run)
        if rows is not None:
            spread = self._groups_per_row > SPREAD_ABOVE
            partials = window.partials(rows, watermark, count_rows=True, spread=spread)
            written = self._table.write(
                self._table.dealt(partials),
                run.epoch,
                run.plan.generation,
                admission=window.admission(watermark),
                fault=run.state_fault(),
            )
            written = written.plus(self._write_accepted_late(run, rows, written.late_rows))
            run.effects.late_rows[self.id] = written.late_rows
            if written.partly_late_rows:
                run.effects.partly_late_rows[self.id] = written.partly_late_rows
            run.effects.wrote(self.id, written)
            rows_read = sum(run.inputs[each].rows for each in run.graph.sources_of(self.id))
            # An estimate for the next epoch. It affects speed only, not results.
            self._groups_per_row = sum(each.rows for each in written.files) / max(1, rows_read)
            run.effects.live[self.id] = run.live(self).appended(written.files)
            timers += window.timers(written.files, open_from)
        run.effects.timers[self.id] = timers
        run.ran_over_inputs(self)

    def _write_accepted_late(self, run: EpochRun, rows: DataFrame, late: int) -> Written:
        """Write the late rows that an open window accepts. The epoch counted them as late before,
        so the returned counts correct its own.
        """
        nothing = Written((), 0, 0)
        watermark = run.watermark_before(self.id)
        if not late or watermark is None:
            return nothing
        open_from = self._window.open_from(watermark)
        bins = self._window.late_bins(open_from)
        if not bins:
            self._before = ()
            return nothing
        self._before = self._table.read(self.context.spark, run.live(self), *bins)
        with run.state_work_of(self):
            accepted = self._window.accepted_late(rows, watermark, self._before)
            written = self._table.write(
                self._table.dealt(accepted),
                run.epoch,
                run.plan.generation,
                admission=self._window.admission(watermark),
            )
        return Written(written.files, written.kept_rows, -written.kept_rows)

    def late(self, rows: DataFrame, run: EpochRun) -> DataFrame | None:
        """Return the rows of an epoch's input that are late for the window."""
        watermark = run.watermark_before(self.id)
        if watermark is None or self._before is None:
            return None
        return self._window.rejected_late(rows, watermark, self._before)

    def output(self, run: EpochRun) -> DataFrame | None:
        """Return the rows of the windows that the watermark has passed."""
        run.enter(self)
        window = self._window
        open_from = window.open_from(run.watermark_before(self.id))
        after = run.watermark_after(self.id)
        still_open_from = window.open_from(after)
        live = run.live(self)
        closed = None
        if after is not None and any(each <= after for each in run.effects.timers[self.id]):
            bins = window.bins_to_close(open_from, still_open_from)
            closing = self._table.read(self.context.spark, live, *bins)
            closed = window.closed(closing, open_from, still_open_from)
            carried = window.carried(closing, still_open_from)
            if carried is not None:
                with run.state_work_of(self):
                    written = self._table.write(carried, run.epoch, run.plan.generation)
                run.effects.bytes_written += written.bytes
                live = live.appended(written.files)
        run.effects.live[self.id] = live.from_time(still_open_from)
        files = run.effects.live[self.id].files
        run.effects.timers[self.id] = window.timers(files, still_open_from)
        return closed

    def is_due(self, watermark: int | None) -> bool:
        return watermark is not None and any(each <= watermark for each in self._timers)

    # ---------------------------------------------------------------- failing input

    def probe(self, upstream: Rows) -> Iterator[DataFrame]:
        (rows,) = self.inputs(upstream)
        if rows is not None:
            yield self._window.partials(rows)
