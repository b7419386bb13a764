"""The life of an epoch: plan, execute, publish, commit.

The engine holds the state of a running job between epochs: offsets, watermarks, live files. It
changes them only when an epoch has been sealed, so a failure anywhere leaves nothing to undo; the
engine is thrown away and a new one is restored from storage. It talks to no one: the worker drives
it and reports what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import DataFrame

from resurgence.clock import Clock
from resurgence.config import Settings
from resurgence.connectors.contract import Source, StagedOutput, merged_output
from resurgence.engine.compaction import TableCompaction
from resurgence.engine.failing_input import FailingInput
from resurgence.engine.operators.window_aggregate import PARTIALS
from resurgence.engine.pipeline import Pipeline
from resurgence.engine.profile import EpochProfile
from resurgence.engine.source_reader import Reading, SourceReader
from resurgence.engine.time_table import Written
from resurgence.errors import IncompatibleState, ResurgenceError
from resurgence.graph.model import SinkOperator, SourceOperator, WindowAggregateOperator
from resurgence.ids import Epoch, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.edits import Fate, require_kept, restore_fates
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import (
    END_OF_TIME,
    OFFSETS,
    STAGED,
    CommittedRecord,
    EpochCounts,
    InputRange,
    Manifest,
    Offset,
    OperatorCheckpointMetadata,
    TableCheckpoint,
    TableKind,
    Totals,
)
from resurgence.testing.faults import FaultInjector, FaultPoint

SPREAD_ABOVE = 0.2
"""Groups per row, in the epoch before, above which grouping twice costs more than shuffling all
rows.
"""


@dataclass(frozen=True)
class Progress:
    """Where the engine stands, for heartbeats: read by other threads, replaced as a whole."""

    epoch: Epoch
    phase: str
    since: datetime
    operator: OperatorId | None = None


@dataclass(frozen=True)
class EpochReport:
    """What an epoch did."""

    epoch: Epoch
    counts: EpochCounts
    rows: int
    bytes: int
    """Bytes of state that the epoch wrote."""
    state_bytes: int
    """Bytes of state that the checkpoint holds."""
    watermark: int | None
    duration: timedelta
    finished: bool
    replayed: bool
    profile: EpochProfile


@dataclass
class _Work:
    """An epoch being executed: everything that becomes true only if it is sealed."""

    epoch: Epoch
    began_at: datetime
    inputs: dict[OperatorId, InputRange]
    profile: EpochProfile
    rows: dict[OperatorId, DataFrame | None] = field(default_factory=dict)
    readings: dict[OperatorId, Reading] = field(default_factory=dict)
    watermarks: dict[OperatorId, int | None] = field(default_factory=dict)
    timers: dict[OperatorId, tuple[int, ...]] = field(default_factory=dict)
    staged: dict[OperatorId, StagedOutput] = field(default_factory=dict)
    bad_rows: dict[OperatorId, int] = field(default_factory=dict)
    late_rows: dict[OperatorId, int] = field(default_factory=dict)
    kept_rows: dict[OperatorId, int] = field(default_factory=dict)
    bytes_written: int = 0
    compacted: Written | None = None


class Engine:
    """Runs a job's epochs, one after the other, from a load plan on."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        backend: StateBackend,
        plan: LoadPlan,
        settings: Settings,
        faults: FaultInjector,
        clock: Clock,
        entered: Callable[[], None] = lambda: None,
    ) -> None:
        """`entered` is called whenever `progress` has changed."""
        self._entered = entered
        self._pipeline = pipeline
        self._graph = pipeline.graph
        self._backend = backend
        self._plan = plan
        self._settings = settings
        self._faults = faults
        self._clock = clock
        self._epoch = plan.epoch
        self._readers = {
            each.id: SourceReader(each, pipeline.sources[each.id])
            for each in pipeline.graph.sources()
        }
        self._offsets: dict[OperatorId, Offset] = {}
        self._totals = plan.manifest.totals if plan.manifest else None
        self._watermarks: dict[OperatorId, int | None] = {}
        self._timers: dict[OperatorId, tuple[int, ...]] = {}
        self.compaction = TableCompaction(pipeline, settings, plan.generation, faults)
        self._exhausted: set[OperatorId] = set()
        self._groups_per_row: dict[OperatorId, float] = {}
        self._inputs: dict[OperatorId, InputRange] = {}
        """Of the epoch under way."""
        self._epoch_began_at = datetime.min.replace(tzinfo=clock.now().tzinfo)
        self.finished = False
        self.progress = Progress(plan.epoch, "restore", clock.now())

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that is sealed."""
        return self._epoch

    # ---------------------------------------------------------------- restore

    def restore(self) -> None:
        """Take up state, watermarks, timers and offsets from the load plan; finish the commit it
        left pending.
        """
        self._enter("restore")
        kept = self._judge_edits()
        now = self._clock.now()
        for operator_id, source in self._pipeline.sources.items():
            if operator_id not in kept:
                self._offsets[operator_id] = self._first_offset(operator_id, source, now)
                self._watermarks[operator_id] = None
            else:
                load = self._plan.operators[operator_id]
                self._offsets[operator_id] = dict(load.metadata.tables[OFFSETS].values)
                self._watermarks[operator_id] = load.metadata.watermark
                if load.metadata.input is not None and load.metadata.input.final:
                    self._exhausted.add(operator_id)
        for operator_id, table in self._pipeline.tables.items():
            if operator_id in kept:
                load = self._plan.operators[operator_id]
                table.load(load.subtasks[PARTIALS])
                self._timers[operator_id] = load.metadata.timers
        if self._plan.generation > 1:
            self._faults.hit(FaultPoint.RESTORE_MID, self._plan.epoch + 1)
        manifest = self._plan.manifest
        if manifest is not None and self._plan.commit_pending:
            staged = {
                each.id: StagedOutput.model_validate(
                    self._plan.operators[each.id].metadata.tables[STAGED].values
                )
                for each in self._graph.sinks()
                if each.id in kept
            }
            self._commit(manifest.epoch, staged, manifest.inputs, manifest.counts)
        self._retract()
        self.sweep(self._epoch)
        self.finished = self._plan.finished and kept.issuperset(self._offsets)
        self._enter("idle")

    def _retract(self) -> None:
        """Take back the output of epochs that were rolled back, as long as nothing follows on
        them.
        """
        for first, last in self._plan.dead:
            if self._plan.epoch < last:
                for sink in self._pipeline.sinks.values():
                    sink.retract(self._plan.job, Epoch(first - 1), last)

    def sweep(self, epoch: Epoch) -> None:
        """Remove what was staged and not committed, up to an epoch that is. What was staged for
        later ones is left: an older generation may just be sealing one of them.
        """
        for sink in self._pipeline.sinks.values():
            sink.sweep(self._plan.job, epoch)

    def _first_offset(self, operator_id: OperatorId, source: Source, now: datetime) -> Offset:
        """Where a source begins of which the checkpoint knows nothing: where it began before, if
        the next epoch is on record.
        """
        recorded = self._plan.recorded.get(self._plan.after(self._plan.epoch))
        if recorded is not None and operator_id in recorded.inputs:
            return recorded.inputs[operator_id].start
        return source.first_offset(now, self._plan.parallelism)

    def _judge_edits(self) -> set[OperatorId]:
        """The operators that take up what the checkpoint holds of them; raises IncompatibleState."""
        schemas = {
            operator_id: table.checkpoint().schema_text
            for operator_id, table in self._pipeline.tables.items()
        }
        judged = restore_fates(self._graph, self._plan, schemas)
        accept_loss = self._settings.checkpoint.accept_state_loss
        require_kept(judged, self._plan.epoch, accept_loss=accept_loss)
        return {each.operator for each in judged if each.fate in (Fate.KEEP, Fate.MIGRATE)}

    # ---------------------------------------------------------------- one epoch

    def run_epoch(
        self,
        started: Callable[[Epoch, int], None] = lambda _epoch, _rows: None,
        sealed: Callable[[EpochReport], None] = lambda _report: None,
        committed: Callable[[EpochReport], None] = lambda _report: None,
    ) -> EpochReport | None:
        """Run the next epoch to its end; None if there is nothing to read yet.

        `started` is called when the input is fixed, `sealed` when the checkpoint exists,
        `committed` when the sinks are done.
        """
        began_at = self._clock.now()
        profile = EpochProfile()
        epoch = self._plan.after(self._epoch)
        with profile.measure("planning"):
            inputs = self._plan_inputs(epoch, began_at)
        if inputs is None:
            return None
        self._epoch_began_at = began_at
        self._inputs = inputs
        self._enter("plan", epoch)
        work = _Work(epoch, began_at, inputs, profile)
        started(epoch, sum(each.rows for each in inputs.values()))
        self._faults.hit(FaultPoint.EPOCH_PLANNED, epoch)
        self._enter("execute", epoch)
        self._execute(work)
        self._enter("publish", epoch)
        counts = self._publish(work)
        report = EpochReport(
            epoch=epoch,
            counts=counts,
            rows=sum(counts.rows_in.values()),
            bytes=work.bytes_written + (work.compacted.bytes if work.compacted else 0),
            state_bytes=sum(
                file.bytes for table in self._pipeline.tables.values() for file in table.files
            ),
            watermark=min(
                (mark for mark in work.watermarks.values() if mark is not None), default=None
            ),
            duration=self._clock.now() - began_at,
            finished=self.finished,
            replayed=epoch in self._plan.recorded,
            profile=profile,
        )
        sealed(report)
        self._enter("commit", epoch)
        self._commit(epoch, work.staged, inputs, counts, profile)
        committed(report)
        if self.finished:
            self.sweep(epoch)
        else:
            self.compaction.begin(
                self._plan.after(epoch),
                lambda each: self._watermark(each, self._watermarks),
            )
        self._enter("idle", epoch)
        return report

    def locate(self, failure: ResurgenceError, patience: timedelta) -> str:
        """Where in the input of the epoch under way the record is that it failed on, as far as that
        can be found in time.
        """
        if not self._inputs:
            return ""
        looked = FailingInput(self._pipeline, self._inputs, self._plan.parallelism, failure)
        return looked.position(self._clock.now(), patience)

    def _plan_inputs(self, epoch: Epoch, now: datetime) -> dict[OperatorId, InputRange] | None:
        """What each source reads in this epoch; None to wait. An epoch that is known already
        reads what it read.
        """
        recorded = self._plan.recorded.get(epoch)
        if recorded is not None:
            starts = {operator_id: each.start for operator_id, each in recorded.inputs.items()}
            if starts == self._offsets:
                return dict(recorded.inputs)
            if recorded.sealed:
                raise IncompatibleState(
                    f"epoch {epoch} must be replayed over the input it read before, which does not "
                    f"follow on the input of epoch {self._epoch}",
                    hint="was the list of sources edited? undo that, or begin with another --name",
                )
        most_rows = self._settings.pipeline.epoch_rows
        planned = {
            operator_id: source.plan(self._offsets[operator_id], most_rows, now)
            for operator_id, source in self._pipeline.sources.items()
            if operator_id not in self._exhausted
        }
        ranges = [each for each in planned.values() if each is not None]
        is_full = any(each.rows >= most_rows or each.final for each in ranges)
        is_due = now - self._epoch_began_at >= self._settings.pipeline.epoch_interval
        if not ranges or not (is_full or is_due):
            return None
        return {
            operator_id: planned.get(operator_id)
            or InputRange(start=offset, end=offset, rows=0, final=operator_id in self._exhausted)
            for operator_id, offset in self._offsets.items()
        }

    # ---------------------------------------------------------------- execute

    def _execute(self, work: _Work) -> None:
        work.compacted = self.compaction.adopt()
        for source in self._graph.sources():
            self._read(work, source.id)
        self._faults.hit(FaultPoint.EPOCH_READ, work.epoch)
        windows = self._graph.window_aggregates()
        if not windows:
            self._faults.hit(FaultPoint.STATE_PARTIAL, work.epoch)
        # Windows over sources come first: the watermark is known when all of them have read.
        over_sources = [each for each in windows if not self._is_over_windows(each)]
        for window in over_sources:
            self._append(work, window)
        for window in windows:
            if window not in over_sources:
                self._append(work, window)
            self._close(work, window)
        self._faults.hit(FaultPoint.STATE_WRITTEN, work.epoch)
        for sink in self._graph.sinks():
            self._stage(work, sink)
        for source in self._graph.sources():
            self._observe(work, source.id)
        self._faults.hit(FaultPoint.SINK_STAGED, work.epoch)

    def _read(self, work: _Work, operator_id: OperatorId) -> None:
        input_range = work.inputs[operator_id]
        if input_range.rows == 0:
            work.rows[operator_id] = None
            return
        with work.profile.measure("planning"):
            work.readings[operator_id] = self._readers[operator_id].read(
                self._pipeline.spark, input_range, self._plan.parallelism
            )
            work.rows[operator_id] = work.readings[operator_id].rows

    def _observe(self, work: _Work, operator_id: OperatorId) -> None:
        """Settle a source's watermark and bad records, once a Spark job has read it."""
        if operator_id in work.watermarks:
            return
        input_range = work.inputs[operator_id]
        mark = self._watermarks[operator_id]
        if operator_id in work.readings:
            seen = work.readings[operator_id].seen()
            source = self._readers[operator_id].source
            if seen.first_bad is not None and not source.drops_bad_records:
                raise source.bad_record(input_range, seen.first_bad)
            work.bad_rows[operator_id] = seen.bad_rows
            if seen.watermark is not None:
                mark = seen.watermark if mark is None else max(seen.watermark, mark)
        work.watermarks[operator_id] = END_OF_TIME if input_range.final else mark

    def _is_over_windows(self, operator: WindowAggregateOperator) -> bool:
        return any(
            isinstance(each, WindowAggregateOperator) for each in self._graph.upstream(operator.id)
        )

    def _watermark(
        self, operator_id: OperatorId, marks: Mapping[OperatorId, int | None]
    ) -> int | None:
        """The watermark that an operator follows: the lowest of its sources. A session closes when
        that is beyond its end, and not at it, so whatever reads sessions, or meets what does, is a
        microsecond behind.
        """
        lowest = _lowest(marks.get(each) for each in self._graph.sources_of(operator_id))
        if lowest is None or lowest == END_OF_TIME:
            return lowest
        return lowest - self._graph.sessions_before(operator_id)

    def _append(self, work: _Work, operator: WindowAggregateOperator) -> None:
        """Add an epoch's partials to what the windows have."""
        self._enter("execute", work.epoch, operator.id)
        window, table = self._pipeline.windows[operator.id], self._pipeline.tables[operator.id]
        sources = self._graph.sources_of(operator.id)
        before = self._watermark(operator.id, self._watermarks)
        rows = self._pipeline.derive(operator.input, work.rows)
        open_from = window.open_from(before)
        timers = self._timers.get(operator.id, ())
        fault = self._faults.claim(FaultPoint.STATE_PARTIAL, work.epoch)
        if rows is not None:
            with work.profile.measure("spark"):
                spread = self._groups_per_row.get(operator.id, 0.0) > SPREAD_ABOVE
                partials = window.partials(rows, before, count_rows=True, spread=spread)
                written = table.write(
                    table.dealt(partials),
                    work.epoch,
                    self._plan.generation,
                    open_from=open_from,
                    fault=fault,
                )
            work.late_rows[operator.id] = written.late_rows
            work.kept_rows[operator.id] = written.kept_rows
            rows_read = sum(work.inputs[each].rows for each in sources)
            self._groups_per_row[operator.id] = sum(each.rows for each in written.files) / max(
                1, rows_read
            )
            work.bytes_written += written.bytes
            # The table is the engine's, but a failure throws the engine away: nothing sees this
            # before the seal.
            table.append(written.files)
            timers += window.timers(written.files, open_from)
        work.timers[operator.id] = timers

    def _close(self, work: _Work, operator: WindowAggregateOperator) -> None:
        """Give the rows of the windows that the watermark has passed."""
        self._enter("execute", work.epoch, operator.id)
        window, table = self._pipeline.windows[operator.id], self._pipeline.tables[operator.id]
        sources = self._graph.sources_of(operator.id)
        open_from = window.open_from(self._watermark(operator.id, self._watermarks))
        for each in sources:
            self._observe(work, each)
        after = self._watermark(operator.id, work.watermarks)
        timers = work.timers[operator.id]
        work.rows[operator.id] = None
        still_open_from = window.open_from(after)
        if after is not None and any(timer <= after for timer in timers):
            bins = window.bins_to_close(open_from, still_open_from)
            closing = table.read(self._pipeline.spark, *bins)
            work.rows[operator.id] = window.closed(closing, open_from, still_open_from)
            carried = window.carried(closing, still_open_from)
            if carried is not None:
                with work.profile.measure("spark"):
                    written = table.write(carried, work.epoch, self._plan.generation)
                work.bytes_written += written.bytes
                table.append(written.files)
        table.drop_before(still_open_from)
        work.timers[operator.id] = window.timers(table.files, still_open_from)

    def _stage(self, work: _Work, operator: SinkOperator) -> None:
        self._enter("execute", work.epoch, operator.id)
        rows = self._pipeline.derive(operator.id, work.rows)
        if rows is None:
            work.staged[operator.id] = StagedOutput()
            return
        with work.profile.measure("spark"):
            sink = self._pipeline.sinks[operator.id]
            work.staged[operator.id] = sink.stage(
                rows, self._plan.job, work.epoch, self._plan.generation
            )

    # ---------------------------------------------------------------- publish and commit

    def _publish(self, work: _Work) -> EpochCounts:
        finished = all(each.final for each in work.inputs.values())
        counts = EpochCounts(
            rows_in={operator_id: each.rows for operator_id, each in work.inputs.items()},
            bad_rows=work.bad_rows,
            late_rows=work.late_rows,
            kept_rows=work.kept_rows,
            rows_out={operator_id: each.rows for operator_id, each in work.staged.items()},
        )
        recorded = self._plan.recorded.get(work.epoch)
        before = self._totals or Totals(since=work.epoch, counts=EpochCounts())
        totals = Totals(since=before.since, counts=before.counts.plus(counts))
        with work.profile.measure("storage"):
            digests = self._backend.write_metadata(self._metadata(work))
            self._faults.hit(FaultPoint.METADATA_WRITTEN, work.epoch)
            self._backend.publish(
                Manifest(
                    job=self._plan.job,
                    epoch=work.epoch,
                    attempt=recorded.attempt if recorded else 0,
                    generation=self._plan.generation,
                    parent=self._epoch,
                    operators=digests,
                    inputs=work.inputs,
                    counts=counts,
                    totals=totals,
                    finished=finished,
                    began_at=work.began_at,
                    sealed_at=self._clock.now(),
                )
            )
        self._epoch = work.epoch
        self._totals = totals
        self._offsets = {operator_id: each.end for operator_id, each in work.inputs.items()}
        self._exhausted = {operator_id for operator_id, each in work.inputs.items() if each.final}
        self._watermarks = dict(work.watermarks)
        self._timers = dict(work.timers)
        if work.compacted is not None:
            self.compaction.settled()
        self.finished = finished
        self._faults.hit(FaultPoint.MANIFEST_PUBLISHED, work.epoch)
        return counts

    def _metadata(self, work: _Work) -> list[OperatorCheckpointMetadata]:
        described = []
        for operator in self._graph.durable():
            watermark = _lowest(
                work.watermarks[each] for each in self._graph.sources_of(operator.id)
            )
            input_range: InputRange | None = None
            timers: tuple[int, ...] = ()
            place = operator.place if isinstance(operator, SourceOperator | SinkOperator) else None
            if isinstance(operator, SourceOperator):
                input_range = work.inputs[operator.id]
                tables = {OFFSETS: TableCheckpoint(kind=TableKind.GLOBAL, values=input_range.end)}
            elif isinstance(operator, WindowAggregateOperator):
                table = self._pipeline.tables[operator.id]
                tables = {PARTIALS: table.checkpoint()}
                timers = work.timers[operator.id]
            else:
                values = work.staged[operator.id].model_dump(mode="json")
                tables = {STAGED: TableCheckpoint(kind=TableKind.GLOBAL, values=values)}
            described.append(
                OperatorCheckpointMetadata(
                    job=self._plan.job,
                    operator=operator.id,
                    epoch=work.epoch,
                    generation=self._plan.generation,
                    parallelism=self._plan.parallelism,
                    watermark=watermark,
                    timers=timers,
                    tables=tables,
                    input=input_range,
                    place=place,
                )
            )
        return described

    def _commit(
        self,
        epoch: Epoch,
        staged: Mapping[OperatorId, StagedOutput],
        inputs: Mapping[OperatorId, InputRange],
        counts: EpochCounts,
        profile: EpochProfile | None = None,
    ) -> None:
        """Make an epoch visible. What was committed before its checkpoint was lost stays as it
        is.
        """
        profile = profile or EpochProfile()
        recorded = self._plan.recorded.get(epoch)
        self._faults.hit(FaultPoint.SINK_COMMITTING, epoch)
        with profile.measure("sinks"):
            for operators in self._pipeline.sink_tables():
                # Several INSERTs into one table are one commit: the sink keys it by (job, epoch).
                sink = self._pipeline.sinks[operators[0]]
                together = merged_output(staged[each] for each in operators if each in staged)
                if recorded is not None and recorded.committed:
                    sink.discard(together)
                else:
                    sink.commit(self._plan.job, epoch, together)
        self._faults.hit(FaultPoint.SINK_COMMITTED, epoch)
        with profile.measure("storage"):
            self._backend.record_committed(
                CommittedRecord(
                    job=self._plan.job,
                    epoch=epoch,
                    generation=self._plan.generation,
                    inputs=dict(inputs),
                    counts=counts,
                    committed_at=self._clock.now(),
                )
            )

    def _enter(
        self, phase: str, epoch: Epoch | None = None, operator: OperatorId | None = None
    ) -> None:
        self.progress = Progress(
            self._epoch if epoch is None else epoch, phase, self._clock.now(), operator
        )
        self._entered()


def _lowest(watermarks: Iterable[int | None]) -> int | None:
    """The watermark of an operator: the lowest of its inputs, none as long as one of them has
    none.
    """
    marks = list(watermarks)
    known = [each for each in marks if each is not None]
    return min(known) if len(known) == len(marks) else None
