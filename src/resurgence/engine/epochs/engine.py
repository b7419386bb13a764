"""The life of an epoch: plan, execute, publish, commit.

The engine holds the state of a running job between epochs: offsets, watermarks, live files. It
changes them only when an epoch has been sealed, so a failure anywhere leaves nothing to undo: the
engine is discarded, and a new one is restored from storage. It does not communicate: the worker
drives it and reports what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from resurgence.clock import Clock
from resurgence.config import Settings
from resurgence.connectors.contract import CoveredInput, Source, StagedOutput, merged_output
from resurgence.engine.epochs.compaction import TableCompaction
from resurgence.engine.epochs.epoch_run import EpochRun
from resurgence.engine.epochs.execution import Execution
from resurgence.engine.epochs.failing_input import FailingInput
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.epochs.sink_agreement import recorded_inputs, require_agreement
from resurgence.engine.functions.planning_time import instant, micros, planned_micros
from resurgence.errors import IncompatibleState, ResurgenceError, SinkConflict
from resurgence.faults import FaultInjector, FaultPoint
from resurgence.ids import Epoch, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.edits import Fate, require_kept, restore_fates
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.checkpoint_records import CheckpointRecords
from resurgence.state.records import (
    OFFSETS,
    STAGED,
    CommittedRecord,
    EpochCounts,
    InputRange,
    Manifest,
    Offset,
    Totals,
)


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
    profile: EpochProfile


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
        self._offsets: dict[OperatorId, Offset] = {}
        self._totals = plan.manifest.totals if plan.manifest else None
        self.compaction = TableCompaction(pipeline, settings, plan.generation, faults)
        self._exhausted: set[OperatorId] = set()
        self._time = planned_micros(plan.manifest.inputs) if plan.manifest else 0
        """When the newest epoch was planned, in microseconds."""
        self._inputs: dict[OperatorId, InputRange] = {}
        """Of the current epoch."""
        self._idle_after = {
            each.id: None if each.idle_micros is None else timedelta(microseconds=each.idle_micros)
            for each in pipeline.graph.sources()
        }
        self._had_rows_at: dict[OperatorId, datetime] = {}
        """For each source: the start of the newest epoch that read rows, or of the first check."""
        self._epoch_began_at = datetime.min.replace(tzinfo=clock.now().tzinfo)
        self.finished = False
        self.progress = Progress(plan.epoch, "restore", clock.now())

    @property
    def epoch(self) -> Epoch:
        """The newest sealed epoch."""
        return self._epoch

    # ---------------------------------------------------------------- restore

    def restore(self) -> None:
        """Restore state, watermarks, timers and offsets from the load plan; finish its pending
        commit.
        """
        self._enter("restore")
        restorable = self._restorable_operators()
        self._compare_sinks()
        now = self._clock.now()
        for operator_id, source in self._pipeline.sources.items():
            if operator_id not in restorable:
                self._offsets[operator_id] = self._first_offset(operator_id, source, now)
            else:
                load = self._plan.operators[operator_id]
                self._offsets[operator_id] = dict(load.metadata.tables[OFFSETS].values)
                if load.metadata.input is not None and load.metadata.input.final:
                    self._exhausted.add(operator_id)
        self._execution.restore(restorable)
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
            self._commit(manifest.epoch, staged, manifest.inputs, manifest.counts)
        self._retract()
        self.sweep(self._epoch)
        is_over = self._exhausted.issuperset(self._offsets) or self._is_full(self._totals)
        self.finished = self._plan.finished and restorable.issuperset(self._offsets) and is_over
        self._enter("idle")

    def _compare_sinks(self) -> None:
        """Raise SinkConflict if a sink holds output that the state has no record of. Checked before
        the first epoch, so that nothing is skipped or written twice.
        """
        known = recorded_inputs(self._plan)
        for operator in self._graph.sinks():
            held = self._pipeline.sinks[operator.id].recall(self._plan.job, known.keys())
            try:
                require_agreement(operator.table, self._plan, held)
            except SinkConflict:
                # A newer generation may have committed since the load was planned. Then this one is
                # fenced, and the state is as new as the sink.
                self._backend.require_newest(self._plan.generation)
                raise

    def _retract(self) -> None:
        """Retract the output of epochs that were rolled back, unless later epochs follow them."""
        for first, last in self._plan.dead:
            if self._plan.epoch < last:
                for sink in self._pipeline.sinks.values():
                    sink.retract(self._plan.job, Epoch(first - 1), last)

    def sweep(self, epoch: Epoch) -> None:
        """Remove staged output that was never committed, up to a committed epoch. Output staged for
        later epochs stays, because an older generation may be sealing one of them.
        """
        for sink in self._pipeline.sinks.values():
            sink.sweep(self._plan.job, epoch)

    def forget(self, before: Epoch) -> None:
        """Let the sinks drop the records of earlier epochs, which no retained checkpoint needs."""
        for sink in self._pipeline.sinks.values():
            sink.forget(self._plan.job, before)

    def _first_offset(self, operator_id: OperatorId, source: Source, now: datetime) -> Offset:
        """Return the start of a source that the checkpoint does not contain: its recorded start, if
        the next epoch is on record.
        """
        recorded = self._plan.recorded.get(self._plan.after(self._plan.epoch))
        if recorded is not None and operator_id in recorded.inputs:
            return recorded.inputs[operator_id].start
        return source.first_offset(now, self._plan.parallelism)

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
    ) -> EpochReport | None:
        """Run the next epoch; return None if there is nothing to read yet.

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
        for operator_id, each in inputs.items():
            if each.rows:
                self._had_rows_at[operator_id] = began_at
        self._inputs = inputs
        self._time = planned_micros(inputs)
        self._enter("plan", epoch)
        rows_out = self._totals.counts.rows_out if self._totals else {}
        run = self._execution.begin(epoch, began_at, self._time, inputs, profile, rows_out)
        started(epoch, sum(each.rows for each in inputs.values()))
        self._faults.hit(FaultPoint.EPOCH_PLANNED, epoch)
        self._enter("execute", epoch)
        compacted = self.compaction.adopt(run)
        self._execution.run(run)
        self._enter("publish", epoch)
        counts, checkpoint = self._publish(run)
        if compacted is not None:
            self.compaction.settled()
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
            profile=profile,
        )
        sealed(report)
        self._enter("commit", epoch)
        self._commit(epoch, run.effects.staged, inputs, counts, profile)
        committed(report)
        if self.finished:
            self.sweep(epoch)
        else:
            self.compaction.begin(self._plan.after(epoch), self._execution.watermark, self._time)
        self._enter("idle", epoch)
        return report

    def locate(self, failure: ResurgenceError, patience: timedelta) -> str:
        """Return the position of the record that the current epoch failed on, as precisely as can
        be found within `patience`.
        """
        if not self._inputs:
            return ""
        search = FailingInput(self._pipeline, self._inputs, self._time, failure)
        return search.position(patience)

    def _plan_inputs(self, epoch: Epoch, now: datetime) -> dict[OperatorId, InputRange] | None:
        """Return the input range of each source, or None to wait. A recorded epoch replays its
        recorded input.
        """
        recorded = self._plan.recorded.get(epoch)
        if recorded is not None:
            starts = {operator_id: each.start for operator_id, each in recorded.inputs.items()}
            if starts == self._offsets:
                return dict(recorded.inputs)
            if recorded.sealed:
                raise IncompatibleState(
                    f"the recorded input of epoch {epoch} does not start where the input of epoch "
                    f"{self._epoch} ends",
                    hint="Undo edits to the list of sources, or start with another --name.",
                )
        most_rows = self._settings.pipeline.epoch_rows
        planned = {
            operator_id: source.plan(self._offsets[operator_id], most_rows, now)
            for operator_id, source in self._pipeline.sources.items()
            if operator_id not in self._exhausted
        }
        # Planning time never goes backwards, even if a machine with another clock takes over.
        planned_at = max(now, instant(self._time))
        ranges = [each for each in planned.values() if each is not None]
        is_full = any(each.rows >= most_rows or each.final for each in ranges)
        is_due = now - self._epoch_began_at >= self._settings.pipeline.epoch_interval
        if not (is_full or is_due):
            return None
        if not ranges and not self._execution.is_window_due(micros(planned_at)):
            return None
        ranges_by_source = {
            operator_id: planned.get(operator_id)
            or InputRange(
                start=offset,
                end=offset,
                rows=0,
                final=operator_id in self._exhausted,
                idle=self._is_idle(operator_id, now),
            )
            for operator_id, offset in self._offsets.items()
        }
        return {
            operator_id: each.model_copy(update={"planned_at": planned_at})
            for operator_id, each in ranges_by_source.items()
        }

    def _is_idle(self, operator_id: OperatorId, now: datetime) -> bool:
        """Return whether a source had no rows for at least its idle timeout."""
        patience = self._idle_after[operator_id]
        had_rows_at = self._had_rows_at.setdefault(operator_id, now)
        return patience is not None and now - had_rows_at >= patience

    # ---------------------------------------------------------------- publish and commit

    def _publish(self, run: EpochRun) -> tuple[EpochCounts, CheckpointRecords]:
        counts = EpochCounts(
            rows_in={operator_id: each.rows for operator_id, each in run.inputs.items()},
            bad_rows=run.effects.bad_rows,
            late_rows=run.effects.late_rows,
            partly_late_rows=run.effects.partly_late_rows,
            kept_rows=run.effects.kept_rows,
            rows_out={operator_id: each.rows for operator_id, each in run.effects.staged.items()},
        )
        recorded = self._plan.recorded.get(run.epoch)
        before = self._totals or Totals(since=run.epoch, counts=EpochCounts())
        totals = Totals(since=before.since, counts=before.counts.plus(counts))
        finished = all(each.final for each in run.inputs.values()) or self._is_full(totals)
        metadata = self._execution.metadata(run)
        with run.profile.measure("storage"):
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
        self._offsets = {operator_id: each.end for operator_id, each in run.inputs.items()}
        self._exhausted = {operator_id for operator_id, each in run.inputs.items() if each.final}
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
        inputs: Mapping[OperatorId, InputRange],
        counts: EpochCounts,
        profile: EpochProfile | None = None,
    ) -> None:
        """Commit the staged output of an epoch. Output that was committed before the epoch's
        checkpoint was lost stays as it is, and the new output is discarded.
        """
        profile = profile or EpochProfile()
        recorded = self._plan.recorded.get(epoch)
        self._faults.hit(FaultPoint.SINK_COMMITTING, epoch)
        with profile.measure("sinks"):
            for operators in self._pipeline.sink_tables():
                # Several INSERTs into one table are one commit, which the sink keys by (job,
                # epoch).
                sink = self._pipeline.sinks[operators[0]]
                together = merged_output(staged[each] for each in operators if each in staged)
                if recorded is not None and recorded.committed:
                    sink.discard(together)
                else:
                    sink.commit(self._plan.job, epoch, together, CoveredInput.of(inputs))
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
