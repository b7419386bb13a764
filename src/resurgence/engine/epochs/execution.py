"""The work of one epoch in Spark: runs every operator by the protocol in `operators.base`.

What an epoch changes is collected in its EpochEffects, and becomes current when it is sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from resurgence.engine.epochs.epoch_run import EpochRun
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.poison_rows import Poison, too_many
from resurgence.engine.epochs.timeline import Timeline
from resurgence.engine.functions.planning_time import planned_micros
from resurgence.engine.operators.base import Operator
from resurgence.errors import IncompatibleState
from resurgence.faults import FaultInjector, FaultPoint
from resurgence.graph.watermarks import followed_watermark, operator_watermark
from resurgence.ids import Epoch, OperatorId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import InputRange, OperatorCheckpointMetadata


class Execution:
    """Runs the operators of a pipeline over the input of one epoch after the other."""

    def __init__(
        self,
        pipeline: Pipeline,
        plan: LoadPlan,
        faults: FaultInjector,
        entered: Callable[[Epoch, OperatorId], None],
    ) -> None:
        """`entered` is called when an operator starts."""
        self._pipeline = pipeline
        self._graph = pipeline.graph
        self._operators = tuple(pipeline.operators.values())
        self._plan = plan
        self._faults = faults
        self._entered = entered
        # Operators that read sources directly run first: a watermark is known once its source was
        # read.
        self._first = [each for each in self._operators if not self._is_over_state(each)]
        self._time = planned_micros(plan.manifest.inputs) if plan.manifest else None
        """When the newest sealed epoch was planned, in microseconds."""

    def restore(self, restorable: set[OperatorId]) -> None:
        """Restore state, watermarks and timers of some operators from the load plan."""
        for operator in self._operators:
            if operator.id in restorable:
                operator.restore(self._plan.operators[operator.id])

    def watermark(self, operator_id: OperatorId) -> int | None:
        """Return the watermark of an operator at the end of the newest sealed epoch."""
        return operator_watermark(self._graph, operator_id, self._watermarks(), self._time)

    def is_window_due(self, time: int) -> bool:
        """Return whether a window would close in an epoch without rows that is planned at `time`,
        in microseconds.
        """
        marks = self._watermarks()
        return any(
            each.is_due(operator_watermark(self._graph, each.id, marks, time))
            for each in self._operators
            if self._graph.follows_planning_time(each.id)
        )

    def begin(
        self,
        epoch: Epoch,
        began_at: datetime,
        time: int,
        inputs: dict[OperatorId, InputRange],
        timeline: Timeline,
        rows_out: Mapping[OperatorId, int],
        max_dead_letters: int,
        poison: Poison,
    ) -> EpochRun:
        """Return a new epoch without effects."""
        return EpochRun(
            epoch=epoch,
            began_at=began_at,
            time=time,
            inputs=inputs,
            timeline=timeline,
            spark=self._pipeline.spark,
            graph=self._graph,
            operators=self._pipeline.operators,
            plan=self._plan,
            faults=self._faults,
            entered=self._entered,
            watermarks_before=self._watermarks(),
            time_before=self._time,
            rows_out=rows_out,
            max_dead_letters=max_dead_letters,
            poison=poison,
        )

    def run(self, run: EpochRun) -> None:
        """Execute an epoch up to its staged output."""
        for operator in self._operators:
            with run.work_of(operator):
                operator.open(run)
        self._faults.hit(FaultPoint.EPOCH_READ, run.epoch)
        for operator in self._first:
            with run.work_of(operator):
                operator.ingest(run)
        for operator in self._operators:
            if operator not in self._first:
                with run.work_of(operator):
                    operator.ingest(run)
            if operator.spec.has_state:
                run.rows(operator.id)
        is_written = not any(each.has_to_write() for each in self._operators)
        if is_written:
            self._pass_state_written(run)
        for operator in self._operators:
            with run.work_of(operator):
                operator.stage(run)
        # What a sink did not read is read now, and was read when the sources are observed.
        for operator in reversed(self._operators):
            with run.work_of(operator):
                operator.observe(run)
        if not is_written:
            self._pass_state_written(run)
        self._stage_dead_letters(run)
        self.release()
        self._faults.hit(FaultPoint.SINK_STAGED, run.epoch)

    def _pass_state_written(self, run: EpochRun) -> None:
        # Not yet hit if no operator had rows to write.
        self._faults.hit(FaultPoint.STATE_PARTIAL, run.epoch)
        self._faults.hit(FaultPoint.STATE_WRITTEN, run.epoch)

    def release(self) -> None:
        """Drop what was cached for the epoch."""
        for operator in self._operators:
            operator.release()

    def _stage_dead_letters(self, run: EpochRun) -> None:
        """Stage the dead letters of each source: a Spark job per source that has some."""
        sources = [
            each
            for each in self._pipeline.source_operators.values()
            if run.effects.dead_rows.get(each.id)
        ]
        count = sum(run.effects.dead_rows.values())
        recorded = self._plan.recorded.get(run.epoch)
        is_fixed = recorded is not None and recorded.sealed
        if count > run.max_dead_letters and not is_fixed:
            raise too_many(count, run.max_dead_letters, *sources[0].first_dead(run))
        for source in sources:
            run.enter(source)
            with run.work_of(source):
                staged = self._pipeline.dead_letters.stage(
                    source.letters(run), run.plan.job, run.epoch, run.plan.generation
                )
            excluded = len(run.inputs[source.id].excluded)
            if excluded and staged.rows < run.effects.dead_rows[source.id]:
                raise IncompatibleState(
                    f"records that epoch {run.epoch} leaves out are not in the input of"
                    f" {source.id}: {excluded:,} are on record, but the epoch has"
                    f" {staged.rows:,} of {run.effects.dead_rows[source.id]:,} dead letters",
                    hint="Undo edits to the source table, and restore the input that the job has"
                    " read.",
                )
            run.effects.dead_letters[source.id] = staged
            run.effects.dead_rows[source.id] = staged.rows

    def metadata(self, run: EpochRun) -> list[OperatorCheckpointMetadata]:
        """Return the metadata of every operator for the checkpoint of an epoch."""
        described = []
        for operator in self._operators:
            state = operator.checkpoint(run)
            if state is not None:
                described.append(
                    OperatorCheckpointMetadata(
                        job=self._plan.job,
                        operator=operator.id,
                        epoch=run.epoch,
                        generation=self._plan.generation,
                        parallelism=self._plan.parallelism,
                        watermark=followed_watermark(
                            self._graph, operator.id, run.effects.watermarks, run.time
                        ),
                        timers=state.timers,
                        tables=state.tables,
                        input=state.input,
                        place=state.place,
                    )
                )
        return described

    def promote(self, run: EpochRun) -> None:
        """Promote the effects of a sealed epoch to the current state."""
        self._time = run.time
        for operator in self._operators:
            operator.promote(run)

    def _watermarks(self) -> dict[OperatorId, int | None]:
        """Of the sources, at the end of the newest sealed epoch."""
        sources = self._pipeline.source_operators
        return {operator_id: each.watermark for operator_id, each in sources.items()}

    def _is_over_state(self, operator: Operator) -> bool:
        return any(each.has_state for each in self._graph.upstream(operator.id))
