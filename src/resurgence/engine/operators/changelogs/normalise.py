"""The operator for changelog normalisation: the last row of each key is in a KeyTable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from resurgence.engine.operators.base import (
    CompactionTask,
    Operator,
    OperatorContext,
    OperatorState,
    Rows,
    merge_in_shares,
)
from resurgence.engine.operators.changelogs.changelog_normaliser import (
    ChangelogNormaliser,
    truncated_at,
    truncation,
)
from resurgence.engine.operators.changelogs.updating_query import ROWS_TABLE
from resurgence.engine.tables.cache_reads import CacheReads
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.graph.specs.normalise import NormaliseSpec
from resurgence.ids import Epoch
from resurgence.state.load_plan import OperatorLoad

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


class NormaliseOperator(Operator):
    """A changelog normaliser of a running pipeline."""

    live: LiveFiles

    def __init__(
        self, spec: NormaliseSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        self.spec = spec
        self._normaliser = ChangelogNormaliser(
            spec,
            self.input_shapes[0],
            url=context.state_url,
            folder=context.paths.table(spec.id, ROWS_TABLE),
            parallelism=context.parallelism,
        )
        self.shape = self._normaliser.shape
        self.live = LiveFiles.none(context.parallelism)
        self.table_schema = self._normaliser.table.checkpoint(self.live).schema_text
        self._changes: DataFrame | None = None

    def restore(self, load: OperatorLoad) -> None:
        tables = load.metadata.tables
        self.live = self._normaliser.table.load(tables[ROWS_TABLE], load.subtasks[ROWS_TABLE])

    def checkpoint(self, run: EpochRun) -> OperatorState:
        return OperatorState({ROWS_TABLE: self._normaliser.table.checkpoint(run.live(self))})

    def compaction(self, time: int, watermark: int | None) -> CompactionTask | None:
        replaced = self._normaliser.mergeable(self.live)
        if not replaced:
            return None
        normaliser = self._normaliser

        def merged(live: LiveFiles) -> DataFrame:
            return normaliser.merged(live, replaced)

        write = merge_in_shares(self.context.spark, self.live, merged, normaliser.table.write)
        return CompactionTask(replaced, write)

    def cache_reads(self) -> CacheReads:
        return self._normaliser.table.cache_reads()

    def ingest(self, run: EpochRun) -> None:
        """Apply an epoch's changes to the rows in state."""
        run.enter(self)
        self._changes = None
        normaliser, live, generation = self._normaliser, run.live(self), run.plan.generation
        (rows,) = self.inputs(run)
        if rows is not None:
            watched, observation = truncation(rows)
            delta = normaliser.delta(watched, run.epoch)
            fault = run.state_fault()
            written = normaliser.table.write(delta, run.epoch, generation, fault=fault)
            at = truncated_at(observation)
            if at is not None:
                delta = normaliser.delta(rows, run.epoch, after=at)
                written = normaliser.table.write(delta, run.epoch, generation)
            run.effects.wrote(self.id, written)
            self._changes = normaliser.changes(live, written.files, truncated=at is not None)
            replaced = frozenset[str]() if at is None else live.paths
            run.effects.live[self.id] = live.exchanged(replaced, written.files)
        run.ran_over_inputs(self)

    def output(self, run: EpochRun) -> DataFrame | None:
        return self._changes

    def release(self) -> None:
        self._normaliser.release()

    def probe(self, upstream: Rows) -> Iterator[DataFrame]:
        (rows,) = self.inputs(upstream)
        if rows is not None:
            yield self._normaliser.delta(rows, Epoch(0))

    def probe_output(self, upstream: Rows) -> DataFrame | None:
        (rows,) = self.inputs(upstream)
        return None if rows is None else self._normaliser.inserted(rows)
