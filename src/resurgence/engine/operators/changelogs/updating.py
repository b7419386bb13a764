"""The operator for updating queries: each epoch changes state by key, and emits the changes of the
result.

UpdatingAggregate owns the computation of aggregates with accumulators and of the first rows by key,
UpdatingQuery that of all other queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from resurgence.engine.functions.clock_reads import free_expressions, refuse_clock_reads
from resurgence.engine.operators.aggregates.accumulators import accumulators
from resurgence.engine.operators.base import (
    CompactionTask,
    Operator,
    OperatorContext,
    OperatorState,
    Rows,
    merge_in_shares,
)
from resurgence.engine.operators.changelogs.first_rows import stored_first_rows
from resurgence.engine.operators.changelogs.updating_aggregate import UpdatingAggregate
from resurgence.engine.operators.changelogs.updating_query import ROWS_TABLE, UpdatingQuery
from resurgence.engine.operators.closed_query import batch_query
from resurgence.engine.operators.sql_places import SqlFragment, places
from resurgence.engine.tables.cache_reads import CacheReads
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.state_writer import WriteThrough, Written
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.state.load_plan import OperatorLoad

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


class UpdatingOperator(Operator):
    """An updating query of a running pipeline."""

    spec: UpdatingQuerySpec
    live: LiveFiles

    def __init__(
        self, spec: UpdatingQuerySpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        inputs_in_state = tuple(
            each.model_copy(update={"columns": free_expressions(each.columns, rows)})
            for each, rows in zip(spec.inputs, self.input_shapes, strict=True)
        )
        self.spec = spec.model_copy(update={"inputs": inputs_in_state})
        with places(spec.position, self._parts):
            self._query = self._compiled()
            columns = [
                rows.selectExpr(*(f"{each.sql} AS `{each.name}`" for each in source.columns))
                for source, rows in zip(inputs_in_state, self.input_shapes, strict=True)
            ]
            refuse_clock_reads(batch_query(context.spark, spec.sql, columns), spec.position)
        self.shape = self._query.shape
        self.live = LiveFiles.none(context.parallelism)
        self.table_schema = self._query.table.checkpoint(self.live).schema_text
        self._changes: DataFrame | None = None
        self._pending: WriteThrough | None = None
        """A write that takes place when a sink reads the changes."""

    def _compiled(self) -> UpdatingAggregate | UpdatingQuery:
        url, folder = self.context.state_url, self.context.paths.table(self.id, ROWS_TABLE)
        parallelism = self.context.parallelism
        (rows, *_) = self.input_shapes
        found = accumulators(self.spec, rows) or stored_first_rows(self.spec, rows)
        if found is None:
            return UpdatingQuery(
                self.spec, self.input_shapes, url=url, folder=folder, parallelism=parallelism
            )
        return UpdatingAggregate(
            self.spec, found, self.context.spark, url=url, folder=folder, parallelism=parallelism
        )

    def _parts(self) -> Iterator[SqlFragment]:
        for source, rows in zip(self.spec.inputs, self.input_shapes, strict=True):
            for each in source.columns:
                yield SqlFragment(rows, each.sql, each.position)

    def restore(self, load: OperatorLoad) -> None:
        tables = load.metadata.tables
        self.live = self._query.table.load(tables[ROWS_TABLE], load.subtasks[ROWS_TABLE])

    def checkpoint(self, run: EpochRun) -> OperatorState:
        return OperatorState({ROWS_TABLE: self._query.table.checkpoint(run.live(self))})

    def compaction(self, time: int, watermark: int | None) -> CompactionTask | None:
        replaced = self._query.table.mergeable(self.live, time)
        if not replaced:
            return None
        query = self._query

        def merged(live: LiveFiles) -> DataFrame:
            return query.merged(live, replaced, time, watermark)

        write = merge_in_shares(self.context.spark, self.live, merged, query.table.write)
        return CompactionTask(replaced, write)

    def cache_reads(self) -> CacheReads:
        return self._query.table.cache_reads()

    def ingest(self, run: EpochRun) -> None:
        run.enter(self)
        self._changes = self._pending = None
        query, watermark = self._query, run.watermark_before(self.id)
        live = query.unexpired(run.live(self), watermark)
        run.effects.live[self.id] = live
        delta = query.delta(self.inputs(run), run.time, watermark)
        if delta is not None:
            place = (delta, live, run.epoch, run.plan.generation, run.time)
            fault = run.state_fault()
            if isinstance(query, UpdatingAggregate) and run.graph.has_one_reader(self.id):
                self._pending, self._changes = query.write_through(
                    *place, watermark=watermark, fault=fault
                )
                return
            written = query.write(*place, watermark=watermark, fault=fault)
            self._wrote(run, written)
            self._changes = query.changes(live, written.files, run.time, watermark)
        run.ran_over_inputs(self)

    def has_to_write(self) -> bool:
        return self._pending is not None

    def observe(self, run: EpochRun) -> None:
        if self._pending is not None:
            written, self._pending = self._pending.written(), None
            self._wrote(run, written)
            run.ran_over_inputs(self)

    def _wrote(self, run: EpochRun, written: Written) -> None:
        rows = sum(run.inputs[each].all_rows for each in run.graph.sources_of(self.id))
        self._query.measured(rows, written.kept_rows)
        run.effects.late_rows[self.id] = self._query.late_rows()
        run.effects.wrote(self.id, written)
        run.effects.live[self.id] = run.live(self).appended(written.files)

    def output(self, run: EpochRun) -> DataFrame | None:
        return self._changes

    def release(self) -> None:
        self._query.release()

    def probe(self, upstream: Rows) -> Iterator[DataFrame]:
        delta = self._query.delta(self.inputs(upstream), 0)
        if delta is not None:
            yield delta
