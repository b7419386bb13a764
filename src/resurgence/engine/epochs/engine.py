"""The life of an epoch: plan, execute, publish, commit.

The engine holds the state of a running job between epochs: offsets, watermarks, live files. It
changes them only when an epoch has been sealed, so a failure anywhere leaves nothing to undo: the
engine is discarded, and a new one is restored from storage. It does not communicate: the worker
drives it and reports what it returns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from resurgence.clock import Clock
from resurgence.config import OnError, Settings
from resurgence.connectors.contract import CoveredInput, Sink, StagedOutput, merged_output
from resurgence.connectors.formats.options import BadData
from resurgence.engine.epochs.compaction import TableCompaction
from resurgence.engine.epochs.epoch_run import EpochRun
from resurgence.engine.epochs.execution import Execution
from resurgence.engine.epochs.failing_input import FailingInput
from resurgence.engine.epochs.input_planner import InputPlanner
from resurgence.engine.epochs.lag import PartitionLag, partition_lag
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.poison_rows import Poison, PoisonSearch, excluding
from resurgence.engine.epochs.profile import EpochProfile, profile_of
from resurgence.engine.epochs.sink_agreement import recorded_inputs, require_agreement
from resurgence.engine.epochs.timeline import Timeline, Work
from resurgence.engine.functions.planning_time import planned_micros
from resurgence.engine.spark.errors import translate
from resurgence.engine.spark.job_figures import JobWatch
from resurgence.engine.spark.master import is_local
from resurgence.engine.tables.cache_reads import CacheReads
from resurgence.engine.tables.state_writer import Written
from resurgence.errors import ResurgenceError, SinkConflict, TooManyDeadLetters
from resurgence.faults import FaultInjector, FaultPoint
from resurgence.ids import Epoch, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.edits import Fate, require_kept, restore_fates
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.checkpoint_records import CheckpointRecords
from resurgence.state.protocol.decisions import EpochRange
from resurgence.state.records import (
    DEAD_LETTERS,
    STAGED,
    CommittedRecord,
    EpochCounts,
    InputRange,
    Manifest,
    Totals,
)
from resurgence.state.replays import Replays

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """The engine's current epoch and phase, for heartbeats. Read by other threads, so it is
    replaced as a whole.
    """

    epoch: Epoch
    phase: str
    since: datetime
    operator: OperatorId | None = None


@dataclass(frozen=True)
class EpochReport:
    """The result of an epoch."""

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
    checkpoint: CheckpointRecords
    timeline: Timeline
    """Complete when the epoch has ended."""
    cache: CacheReads
    """The reads of state files by the epoch's tasks."""
    lag: tuple[PartitionLag, ...] = ()
    """Of every partition of the sources that have partitions."""


class Engine:
    """Runs a job's epochs, one after the other, starting from a load plan."""

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
        self._execution = Execution(
            pipeline, plan, faults, lambda epoch, operator: self._enter("execute", epoch, operator)
        )
        self._totals = plan.manifest.totals if plan.manifest else None
        self.compaction = TableCompaction(pipeline, settings, plan.generation, faults)
        self._cache_reads = CacheReads()
        """Of all epochs so far."""
        self._time = planned_micros(plan.manifest.inputs) if plan.manifest else 0
        """When the newest epoch was planned, in microseconds."""
        self._inputs: dict[OperatorId, InputRange] = {}
        """Of the current epoch."""
        self._record_times: dict[OperatorId, dict[str, int]] = {}
        """By source and partition: when the newest record that was read was written."""
        self._on_error = pipeline.graph.on_error or settings.pipeline.on_error
        keeps_bad = any(each.bad_data is BadData.DEAD_LETTER for each in pipeline.sources.values())
        has_staged = bool(self._staged_letters().files)
        self._has_letters = keeps_bad or has_staged or self._on_error is OnError.DEAD_LETTER
        """The job can have dead letters."""
        replays = Replays(backend.store, backend.paths)
        self._input = InputPlanner(pipeline, plan, settings, replays, has_letters=self._has_letters)
        self.finished = False
        self._timeline = Timeline()
        """Of the current epoch."""
        self._jobs = JobWatch(pipeline.spark) if settings.pipeline.profile else None
        self._took = timedelta(0)
        """How long the newest epoch was executed."""
        self.progress = Progress(plan.epoch, "restore", clock.now())

    @property
    def epoch(self) -> Epoch:
        """The newest sealed epoch."""
        return self._epoch

    def replay_of(self, epoch: Epoch) -> EpochRange | None:
        """Return the first and the last epoch that are replayed if this is one of them."""
        return self._plan.replay_of(epoch)

    # ---------------------------------------------------------------- restore

    def restore(self) -> None:
        """Restore state, watermarks, timers and offsets from the load plan; finish its pending
        commit.
        """
        self._enter("restore")
        restorable = self._restorable_operators()
        for operators in self._pipeline.sink_tables():
            self._pipeline.sinks[operators[0]].take_over(self._plan.job)
        self._compare_sinks()
        now = self._clock.now()
        self._input.restore(restorable, now)
        self._execution.restore(restorable)
        self._input.look_for_replays(now)
        self._input.skip_replays(restorable)
        if self._plan.generation > 1:
            self._faults.hit(FaultPoint.RESTORE_MID, self._plan.epoch + 1)
        manifest = self._plan.manifest
        if manifest is not None and self._plan.commit_pending:
            staged = {
                each.id: StagedOutput.model_validate(
                    self._plan.operators[each.id].metadata.tables[STAGED].values
                )
                for each in self._graph.sinks()
                if each.id in restorable
            }
            self._commit(
                manifest.epoch, staged, self._staged_letters(), manifest.inputs, manifest.counts
            )
        if manifest is not None:
            # The process that committed the epoch may have died before its sources took note.
            for operator_id in restorable.intersection(self._pipeline.sources):
                self._pipeline.sources[operator_id].committed(manifest.inputs[operator_id])
        self._retract()
        self.sweep(self._epoch)
        is_over = self._input.has_ended() or self._is_full(self._totals)
        is_over = is_over and not self._input.next_replays()
        is_whole = restorable.issuperset(self._input.sources)
        # An epoch that was to be followed by a replay is not marked as the end.
        has_finished = self._plan.finished or self._input.has_ended()
        self.finished = has_finished and is_whole and is_over
        if self.finished:
            self.flush()
        self._enter("idle")

    def _compare_sinks(self) -> None:
        """Raise SinkConflict if a sink holds output that the state has no record of. Checked before
        the first epoch, so that nothing is skipped or written twice.
        """
        known = recorded_inputs(self._plan)
        sinks = [(each.table, self._pipeline.sinks[each.id]) for each in self._graph.sinks()]
        if self._has_letters:
            sinks.append(("dead letters", self._pipeline.dead_letters))
        for table, sink in sinks:
            held = sink.recall(self._plan.job, known.keys())
            try:
                require_agreement(table, self._plan, held)
            except SinkConflict:
                # A newer generation may have committed since the load was planned. Then this one is
                # fenced, and the state is as new as the sink.
                self._backend.require_newest(self._plan.generation)
                raise

    def _staged_letters(self) -> StagedOutput:
        """Return the dead letters that the restored checkpoint has staged."""
        tables = (each.metadata.tables.get(DEAD_LETTERS) for each in self._plan.operators.values())
        return merged_output(
            StagedOutput.model_validate(each.values) for each in tables if each is not None
        )

    def _retract(self) -> None:
        """Retract the output of epochs that were rolled back, unless later epochs follow them."""
        for first, last in self._plan.dead:
            if self._plan.epoch < last:
                for sink in (*self._pipeline.sinks.values(), self._pipeline.dead_letters):
                    sink.retract(self._plan.job, Epoch(first - 1), last)

    def sweep(self, epoch: Epoch) -> None:
        """Remove staged output that was never committed, up to a committed epoch. Output staged for
        later epochs stays, because an older generation may be sealing one of them.
        """
        for sink in self._swept_sinks():
            sink.sweep(self._plan.job, epoch)

    def flush(self, now: datetime | None = None) -> None:
        """Let the sinks make visible what they hold back: all of it, or what is due by now. Called
        between epochs.
        """
        for operators in self._pipeline.sink_tables():
            self._pipeline.sinks[operators[0]].flush(
                self._pipeline.spark,
                self._plan.job,
                self._plan.after(self._epoch),
                lambda: self._backend.require_newest(self._plan.generation),
                now,
            )

    def close(self) -> None:
        """Let the sources end what they do in the background. Called after the last epoch."""
        for source in self._pipeline.sources.values():
            source.close()

    def forget(self, before: Epoch) -> None:
        """Let the sinks drop the records of earlier epochs, which no retained checkpoint needs."""
        for sink in self._swept_sinks():
            sink.forget(self._plan.job, before)

    def _swept_sinks(self) -> list[Sink]:
        letters = [self._pipeline.dead_letters] if self._has_letters else []
        return [*self._pipeline.sinks.values(), *letters]

    def _restorable_operators(self) -> set[OperatorId]:
        """Return the operators to restore from the checkpoint. Raise IncompatibleState if state
        would be lost.
        """
        fates = restore_fates(self._graph, self._plan, self._pipeline.table_schemas())
        accept_loss = self._settings.checkpoint.accept_state_loss
        require_kept(fates, self._plan.epoch, accept_loss=accept_loss)
        return {each.operator for each in fates if each.fate in (Fate.KEEP, Fate.MIGRATE)}

    # ---------------------------------------------------------------- one epoch

    def run_epoch(
        self,
        started: Callable[[Epoch, int], None] = lambda _epoch, _rows: None,
        sealed: Callable[[EpochReport], None] = lambda _report: None,
        committed: Callable[[EpochReport], None] = lambda _report: None,
        profiled: Callable[[EpochProfile], None] = lambda _profile: None,
    ) -> EpochReport | None:
        """Run the next epoch; return None if there is nothing to read yet.

        `started` is called when the input is fixed, `sealed` when the checkpoint exists,
        `committed` when the sinks are done; `profiled` at the end, if epochs are profiled.
        """
        self._timeline = Timeline()
        if self._jobs is None:
            report = self._run_epoch(started, sealed, committed)
            self._timeline.end()
            return report
        with self._jobs.watched():
            report = self._run_epoch(started, sealed, committed)
        self._timeline.end()
        if report is not None:
            profiled(profile_of(report.epoch, self._timeline.spans, self._jobs.read()))
        return report

    def _run_epoch(
        self,
        started: Callable[[Epoch, int], None],
        sealed: Callable[[EpochReport], None],
        committed: Callable[[EpochReport], None],
    ) -> EpochReport | None:
        within = self._timeline.within
        began_at = self._clock.now()
        epoch = self._plan.after(self._epoch)
        with within(Work.PLANNING):
            inputs = self._input.next(
                epoch, self._epoch, began_at, self._time, self._execution.is_window_due
            )
        if inputs is None:
            return None
        self._input.begin(inputs, began_at)
        self._inputs = inputs
        self._time = planned_micros(inputs)
        self._enter("plan", epoch)
        with within(Work.MESSAGES):
            started(epoch, sum(each.all_rows for each in inputs.values()))
        self._faults.hit(FaultPoint.EPOCH_PLANNED, epoch)
        run, compacted = self._execute(epoch, began_at, inputs)
        if is_local(str(self._pipeline.spark.sparkContext.master)):
            # On a cluster the number on record may be too high: Spark counts the rows of tasks twice
            # that it repeats after the loss of an executor.
            self._input.require_no_fewer_rows(epoch, run.effects.rows_in)
        self._enter("publish", epoch)
        with within(Work.STORAGE):
            counts, checkpoint = self._publish(run)
        if compacted is not None:
            self.compaction.settled()
        cache = self._pipeline.cache_reads()
        report = EpochReport(
            epoch=epoch,
            counts=counts,
            rows=sum(counts.rows_in.values()),
            bytes=run.effects.bytes_written + (compacted.bytes if compacted else 0),
            state_bytes=sum(
                file.bytes for live in self._pipeline.live_files().values() for file in live.files
            ),
            watermark=min(
                (mark for mark in run.effects.watermarks.values() if mark is not None),
                default=None,
            ),
            duration=self._clock.now() - began_at,
            finished=self.finished,
            replayed=epoch in self._plan.recorded,
            checkpoint=checkpoint,
            timeline=self._timeline,
            cache=cache.minus(self._cache_reads),
            lag=self._lag(run),
        )
        self._cache_reads = cache
        with within(Work.MESSAGES):
            sealed(report)
        self._enter("commit", epoch)
        letters = merged_output(run.effects.dead_letters.values())
        self._commit(epoch, run.effects.staged, letters, run.inputs, counts)
        for operator_id, source in self._pipeline.sources.items():
            source.committed(run.inputs[operator_id])
        with within(Work.MESSAGES):
            committed(report)
        if self.finished:
            with within(Work.SINKS):
                self.flush()
                self.sweep(epoch)
        else:
            next_epoch = self._plan.after(epoch)
            with within(Work.COMPACTION):
                self.compaction.begin(next_epoch, self._execution.watermark, self._time)
        self._enter("idle", epoch)
        return report

    def _execute(
        self,
        epoch: Epoch,
        began_at: datetime,
        inputs: dict[OperatorId, InputRange],
    ) -> tuple[EpochRun, Written | None]:
        """Execute an epoch up to its staged output. If it fails on some rows of its input, and the
        pipeline allows it, execute it again without them.
        """
        try:
            return self._attempt(epoch, began_at, inputs, {})
        except Exception as error:
            failed = self.progress.operator
            poison = self._poison(epoch, inputs, translate(error))
            if not poison:
                raise
            count = sum(map(len, poison.values()))
            log.warning("epoch %d failed; running it without %d of its records", epoch, count)
            self._inputs = excluding(inputs, poison)
            try:
                return self._attempt(epoch, began_at, self._inputs, poison)
            except Exception as second:
                if not translate(second).depends_on_data:
                    raise
                # These rows are not, or not alone, what it fails on.
                self._inputs = inputs
                self._enter("execute", epoch, failed)
                raise error from second

    def _attempt(
        self,
        epoch: Epoch,
        began_at: datetime,
        inputs: dict[OperatorId, InputRange],
        poison: Poison,
    ) -> tuple[EpochRun, Written | None]:
        rows_out = self._totals.counts.rows_out if self._totals else {}
        most = self._settings.pipeline.max_dead_letters
        run = self._execution.begin(
            epoch, began_at, self._time, inputs, self._timeline, rows_out, most, poison
        )
        self._enter("execute", epoch)
        with self._timeline.within(Work.COMPACTION):
            compacted = self.compaction.adopt(run, self._took)
        started = time.monotonic()
        self._execution.run(run)
        self._took = timedelta(seconds=time.monotonic() - started)
        return run, compacted

    def _poison(
        self, epoch: Epoch, inputs: dict[OperatorId, InputRange], failure: ResurgenceError
    ) -> Poison:
        """Return the rows on which an epoch failed; none if they cannot be left out. The input of a
        sealed epoch is fixed, also if the pipeline was edited.
        """
        recorded = self._plan.recorded.get(epoch)
        is_fixed = recorded is not None and recorded.sealed
        if self._on_error is OnError.FAIL or not failure.depends_on_data or is_fixed:
            return {}
        failed = self.progress.operator
        self._enter("search", epoch, failed)
        self._execution.release()
        search = PoisonSearch(
            self._pipeline, inputs, self._time, self._settings.pipeline.max_dead_letters
        )
        try:
            return search.run(self._settings.pipeline.search_timeout)
        except TooManyDeadLetters:
            raise
        except Exception:
            # The original error is what its user has to know.
            log.exception("the search for the records that epoch %d fails on has failed", epoch)
            return {}
        finally:
            self._enter("execute", epoch, failed)

    def locate(self, failure: ResurgenceError, patience: timedelta) -> str:
        """Return the position of the record that the current epoch failed on, as precisely as can
        be found within `patience`.
        """
        if not self._inputs:
            return ""
        search = FailingInput(self._pipeline, self._inputs, self._time, failure)
        return search.position(patience)

    def _lag(self, run: EpochRun) -> tuple[PartitionLag, ...]:
        """Return the lag of every partition after an epoch."""
        for operator_id, times in run.effects.record_times.items():
            self._record_times.setdefault(operator_id, {}).update(times)
        return tuple(
            lag
            for each in self._graph.sources()
            for lag in partition_lag(
                each.table,
                self._pipeline.sources[each.id],
                run.inputs[each.id],
                self._record_times.get(each.id, {}),
                # Not the clock of the epochs, which does not follow when the system time is set:
                # records carry the system time of their producers.
                time.time_ns() // 1000,
            )
        )

    # ---------------------------------------------------------------- publish and commit

    def _publish(self, run: EpochRun) -> tuple[EpochCounts, CheckpointRecords]:
        counts = EpochCounts(
            rows_in=run.effects.rows_in,
            bad_rows=run.effects.bad_rows,
            dead_rows=run.effects.dead_rows,
            skipped_rows={
                operator_id: each.skipped_rows
                for operator_id, each in run.inputs.items()
                if each.skipped_rows
            },
            late_rows=run.effects.late_rows,
            partly_late_rows=run.effects.partly_late_rows,
            kept_rows=run.effects.kept_rows,
            rows_out={operator_id: each.rows for operator_id, each in run.effects.staged.items()},
        )
        recorded = self._plan.recorded.get(run.epoch)
        before = self._totals or Totals(since=run.epoch, counts=EpochCounts())
        totals = Totals(since=before.since, counts=before.counts.plus(counts))
        is_over = all(each.final for each in run.inputs.values()) or self._is_full(totals)
        finished = is_over and not self._input.has_more_replays(run.inputs)
        metadata = self._execution.metadata(run)
        digests = self._backend.write_metadata(metadata)
        self._faults.hit(FaultPoint.METADATA_WRITTEN, run.epoch)
        manifest = Manifest(
            job=self._plan.job,
            epoch=run.epoch,
            attempt=recorded.attempt if recorded else 0,
            generation=self._plan.generation,
            parent=self._epoch,
            operators=digests,
            inputs=run.inputs,
            counts=counts,
            totals=totals,
            finished=finished,
            began_at=run.began_at,
            sealed_at=self._clock.now(),
        )
        self._backend.publish(manifest)
        self._epoch = run.epoch
        self._totals = totals
        self._input.promote(run.inputs)
        self._execution.promote(run)
        self.finished = finished
        self._faults.hit(FaultPoint.MANIFEST_PUBLISHED, run.epoch)
        return counts, CheckpointRecords(manifest, {each.operator: each for each in metadata})

    def _is_full(self, totals: Totals | None) -> bool:
        """Return whether every sink has a limit, and has reached it."""
        written = totals.counts.rows_out if totals else {}
        return all(
            each.limit is not None and written.get(each.id, 0) >= each.limit
            for each in self._graph.sinks()
        )

    def _commit(
        self,
        epoch: Epoch,
        staged: Mapping[OperatorId, StagedOutput],
        letters: StagedOutput,
        inputs: Mapping[OperatorId, InputRange],
        counts: EpochCounts,
    ) -> None:
        """Commit the staged output of an epoch. Output that was committed before the epoch's
        checkpoint was lost stays as it is, and the new output is discarded.
        """
        recorded = self._plan.recorded.get(epoch)
        self._faults.hit(FaultPoint.SINK_COMMITTING, epoch)
        with self._timeline.within(Work.SINKS):
            # Several INSERTs into one table are one commit, which the sink keys by (job, epoch).
            outputs: list[tuple[Sink, StagedOutput]] = [
                (
                    self._pipeline.sinks[operators[0]],
                    merged_output(staged[each] for each in operators if each in staged),
                )
                for operators in self._pipeline.sink_tables()
            ]
            if letters.files:
                outputs.append((self._pipeline.dead_letters, letters))
            for place, (sink, together) in enumerate(outputs):
                if place:
                    self._faults.hit(FaultPoint.SINK_BETWEEN, epoch, place)
                if recorded is not None and recorded.committed:
                    sink.discard(together)
                else:
                    covered = CoveredInput.of(inputs)
                    sink.commit(self._pipeline.spark, self._plan.job, epoch, together, covered)
        self._faults.hit(FaultPoint.SINK_COMMITTED, epoch)
        with self._timeline.within(Work.STORAGE):
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
        with self._timeline.within(Work.MESSAGES):
            self._entered()
