"""One epoch's work in Spark: read the sources, run the operators, stage the output.

What an epoch does is put down in an EpochWork. It becomes true when the epoch is sealed, and not
before: a failure throws the engine away, and with it the work and the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame

from resurgence.connectors.contract import StagedOutput
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.planning_time import planned_micros
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.epochs.source_reader import Reading, SourceReader
from resurgence.engine.operators.changelog_normaliser import truncated_at, truncation
from resurgence.engine.operators.updating_query import ROWS_TABLE
from resurgence.engine.operators.window_aggregate import PARTIALS
from resurgence.engine.tables.exact_rows import net_changes
from resurgence.engine.tables.key_table import KeyTable
from resurgence.engine.tables.state_writer import Written
from resurgence.engine.tables.time_table import SubtaskRows
from resurgence.faults import FaultInjector, FaultPoint
from resurgence.graph.model import (
    LateRowsSpec,
    NormaliseSpec,
    SinkSpec,
    SourceSpec,
    StatefulSpec,
    UpdatingQuerySpec,
    WindowAggregateSpec,
)
from resurgence.ids import Epoch, OperatorId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import (
    END_OF_TIME,
    OFFSETS,
    STAGED,
    InputRange,
    OperatorCheckpointMetadata,
    TableCheckpoint,
    TableKind,
)

SPREAD_ABOVE = 0.2
"""Groups per row, in the epoch before, above which grouping twice costs more than shuffling all
rows.
"""


@dataclass
class EpochWork:
    """An epoch being executed: everything that becomes true only if it is sealed."""

    epoch: Epoch
    began_at: datetime
    time: int
    """When it was planned, in microseconds."""
    inputs: dict[OperatorId, InputRange]
    profile: EpochProfile
    rows_out: Mapping[OperatorId, int] = field(default_factory=dict)
    """How many rows each sink has taken before."""
    rows: dict[OperatorId, DataFrame | None] = field(default_factory=dict)
    readings: dict[OperatorId, Reading] = field(default_factory=dict)
    read: set[OperatorId] = field(default_factory=set)
    """The operators whose rows a Spark job has been over."""
    watermarks: dict[OperatorId, int | None] = field(default_factory=dict)
    timers: dict[OperatorId, tuple[int, ...]] = field(default_factory=dict)
    staged: dict[OperatorId, StagedOutput] = field(default_factory=dict)
    bad_rows: dict[OperatorId, int] = field(default_factory=dict)
    late_rows: dict[OperatorId, int] = field(default_factory=dict)
    partly_late_rows: dict[OperatorId, int] = field(default_factory=dict)
    kept_rows: dict[OperatorId, int] = field(default_factory=dict)
    before: dict[OperatorId, tuple[SubtaskRows, ...]] = field(default_factory=dict)
    """Of windows with late rows in the epoch: what was in state before, if they take late rows."""
    bytes_written: int = 0
    compacted: Written | None = None


class Execution:
    """Runs the operators of a pipeline over the input of one epoch after the other."""

    def __init__(
        self,
        pipeline: Pipeline,
        plan: LoadPlan,
        faults: FaultInjector,
        entered: Callable[[Epoch, OperatorId], None],
    ) -> None:
        """`entered` is called when an operator's turn comes."""
        self._pipeline = pipeline
        self._graph = pipeline.graph
        self._plan = plan
        self._faults = faults
        self._entered = entered
        self._readers = {
            each.id: SourceReader(each, pipeline.sources[each.id])
            for each in pipeline.graph.sources()
        }
        self._stateful = tuple(
            each for each in self._graph.operators if isinstance(each, StatefulSpec)
        )
        self._timed = {each.id for each in self._graph.sources() if each.watermark is not None}
        self._time = planned_micros(plan.manifest.inputs) if plan.manifest else None
        """When the newest sealed epoch was planned, in microseconds."""
        self._watermarks: dict[OperatorId, int | None] = {}
        """Of the sources, at the end of the newest sealed epoch."""
        self._timers: dict[OperatorId, tuple[int, ...]] = {}
        self._groups_per_row: dict[OperatorId, float] = {}

    def restore(self, kept: set[OperatorId]) -> None:
        """Take up state, watermarks and timers of the operators that the load plan has them for."""
        for source in self._graph.sources():
            is_kept = source.id in kept
            self._watermarks[source.id] = (
                self._plan.operators[source.id].metadata.watermark if is_kept else None
            )
        for operator in self._stateful:
            if operator.id not in kept:
                continue
            load = self._plan.operators[operator.id]
            if isinstance(operator, WindowAggregateSpec):
                self._pipeline.tables[operator.id].load(load.subtasks[PARTIALS])
                self._timers[operator.id] = load.metadata.timers
            else:
                table = self._key_table(operator)
                table.load(load.metadata.tables[ROWS_TABLE], load.subtasks[ROWS_TABLE])

    def adopt(self, work: EpochWork) -> None:
        """The epoch is sealed: what it found is how things are."""
        self._time = work.time
        self._watermarks = dict(work.watermarks)
        self._timers = dict(work.timers)

    def watermark(self, operator_id: OperatorId) -> int | None:
        """The watermark of an operator at the end of the newest sealed epoch."""
        return self._watermark(operator_id, self._watermarks, self._time)

    def is_window_due(self, time: int) -> bool:
        """Whether a window would close in an epoch without rows that is planned at an instant, in
        microseconds.
        """
        for operator in self._graph.window_aggregates():
            if self._graph.follows_planning_time(operator.id):
                watermark = self._watermark(operator.id, self._watermarks, time)
                timers = self._timers.get(operator.id, ())
                if watermark is not None and any(each <= watermark for each in timers):
                    return True
        return False

    def run(self, work: EpochWork) -> None:
        """Execute an epoch up to its staged output."""
        for source in self._graph.sources():
            self._read(work, source.id)
        self._look_up(work)
        self._faults.hit(FaultPoint.EPOCH_READ, work.epoch)
        # What reads sources directly comes first: a watermark is known when its source was read.
        first = [each for each in self._stateful if not self._is_over_state(each)]
        for operator in first:
            self._append(work, operator)
        for operator in self._stateful:
            if operator not in first:
                self._append(work, operator)
            if isinstance(operator, WindowAggregateSpec):
                self._close(work, operator)
        for each in self._graph.operators:
            if isinstance(each, LateRowsSpec):
                work.rows[each.id] = self._late(work, each)
        # Due still where no operator had rows to write.
        self._faults.hit(FaultPoint.STATE_PARTIAL, work.epoch)
        self._faults.hit(FaultPoint.STATE_WRITTEN, work.epoch)
        for sink in self._graph.sinks():
            self._stage(work, sink)
        for source in self._graph.sources():
            self._observe(work, source.id)
        for query in self._pipeline.updating.values():
            query.release()
        for normaliser in self._pipeline.normalisers.values():
            normaliser.release()
        self._faults.hit(FaultPoint.SINK_STAGED, work.epoch)

    def _read(self, work: EpochWork, operator_id: OperatorId) -> None:
        input_range = work.inputs[operator_id]
        if input_range.rows == 0:
            work.rows[operator_id] = None
            return
        with work.profile.measure("planning"):
            work.readings[operator_id] = self._readers[operator_id].read(
                self._pipeline.spark, input_range, self._plan.parallelism, work.time
            )
            work.rows[operator_id] = work.readings[operator_id].rows

    def _look_up(self, work: EpochWork) -> None:
        """Read the lookup tables that are due: for the whole epoch they stay as they are then."""
        for operator in self._graph.lookup_joins():
            table = self._pipeline.lookups[operator.table.name]
            if table.is_due(work.epoch, work.began_at):
                self._entered(work.epoch, operator.id)
                with work.profile.measure("spark"):
                    table.read(work.epoch, work.began_at)

    def _observe(self, work: EpochWork, operator_id: OperatorId) -> None:
        """Settle a source's watermark and bad records, once a Spark job has read it."""
        if operator_id in work.watermarks:
            return
        input_range = work.inputs[operator_id]
        mark = self._watermarks[operator_id]
        if operator_id in work.readings:
            seen = work.readings[operator_id].seen(was_read=operator_id in work.read)
            source = self._readers[operator_id].source
            if seen.first_bad is not None and not source.drops_bad_records:
                raise self._readers[operator_id].bad_record(input_range, seen, work.time)
            work.bad_rows[operator_id] = seen.bad_rows
            if seen.watermark is not None:
                mark = seen.watermark if mark is None else max(seen.watermark, mark)
        if input_range.idle:
            mark = self._abreast(mark, work.inputs)
        work.watermarks[operator_id] = END_OF_TIME if input_range.final else mark

    def _abreast(self, mark: int | None, inputs: Mapping[OperatorId, InputRange]) -> int | None:
        """The watermark of a source that is idle: it keeps up with the slowest of the others, as
        they were at the start of the epoch.
        """
        others = [
            self._watermarks[each]
            for each, given in inputs.items()
            if not given.idle and not given.final and each in self._timed
        ]
        known = [each for each in (mark, _lowest(others)) if each is not None]
        return max(known, default=None) if others else mark

    def _is_over_state(self, operator: StatefulSpec) -> bool:
        return any(isinstance(each, StatefulSpec) for each in self._graph.upstream(operator.id))

    def _watermark(
        self, operator_id: OperatorId, marks: Mapping[OperatorId, int | None], time: int | None
    ) -> int | None:
        """The watermark that an operator follows: the lowest of its sources, less its lag. `time`
        is the planning time, which is the watermark of windows by processing time.
        """
        lowest = _lowest(self._followed(operator_id, marks, time))
        if lowest is None or lowest == END_OF_TIME:
            return lowest
        return lowest - self._graph.lag_micros(operator_id)

    def _followed(
        self, operator_id: OperatorId, marks: Mapping[OperatorId, int | None], time: int | None
    ) -> list[int | None]:
        """The watermarks that an operator follows, and the planning time if it follows that."""
        followed = [marks.get(each) for each in self._graph.event_time_sources_of(operator_id)]
        if self._graph.follows_planning_time(operator_id):
            given = (marks.get(each) for each in self._graph.sources_of(operator_id))
            followed.append(END_OF_TIME if all(each == END_OF_TIME for each in given) else time)
        return followed

    def _append(self, work: EpochWork, operator: StatefulSpec) -> None:
        """Add an epoch's rows to what an operator keeps."""
        self._entered(work.epoch, operator.id)
        if isinstance(operator, WindowAggregateSpec):
            self._aggregate(work, operator)
        elif isinstance(operator, NormaliseSpec):
            self._normalise(work, operator)
        else:
            self._update(work, operator)
        work.read.update(each.id for each in self._graph.upstream(operator.id))

    def _aggregate(self, work: EpochWork, operator: WindowAggregateSpec) -> None:
        """Add an epoch's partials to what the windows have."""
        window, table = self._pipeline.windows[operator.id], self._pipeline.tables[operator.id]
        sources = self._graph.sources_of(operator.id)
        before = self.watermark(operator.id)
        rows = self._pipeline.derive(operator.input, work.rows, work.time)
        open_from = window.open_from(before)
        timers = self._timers.get(operator.id, ())
        if rows is not None:
            fault = self._faults.claim(FaultPoint.STATE_PARTIAL, work.epoch)
            with work.profile.measure("spark"):
                spread = self._groups_per_row.get(operator.id, 0.0) > SPREAD_ABOVE
                rows = self._pipeline.timed(operator.id, rows, work.time)
                partials = window.partials(rows, before, count_rows=True, spread=spread)
                written = table.write(
                    table.dealt(partials),
                    work.epoch,
                    self._plan.generation,
                    open_from=open_from,
                    partly_late_before=window.partly_late_before(open_from),
                    fault=fault,
                )
                written = written.plus(self._keep_late(work, operator, rows, written.late_rows))
            work.late_rows[operator.id] = written.late_rows
            if written.partly_late_rows:
                work.partly_late_rows[operator.id] = written.partly_late_rows
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

    def _keep_late(
        self, work: EpochWork, operator: WindowAggregateSpec, rows: DataFrame, late: int
    ) -> Written:
        """Write the late rows that a window in state still takes. What it returns is to be added to
        what was written of the epoch, where they were counted as late.
        """
        nothing = Written((), 0, 0)
        window, table = self._pipeline.windows[operator.id], self._pipeline.tables[operator.id]
        watermark = self.watermark(operator.id)
        if not late or watermark is None:
            return nothing
        open_from = window.open_from(watermark)
        bins = window.late_bins(open_from)
        work.before[operator.id] = table.read(self._pipeline.spark, *bins) if bins else ()
        if not bins:
            return nothing
        kept = window.kept_late(rows, watermark, work.before[operator.id])
        written = table.write(
            table.dealt(kept), work.epoch, self._plan.generation, open_from=open_from
        )
        return Written(written.files, written.kept_rows, -written.kept_rows)

    def _close(self, work: EpochWork, operator: WindowAggregateSpec) -> None:
        """Give the rows of the windows that the watermark has passed."""
        self._entered(work.epoch, operator.id)
        window, table = self._pipeline.windows[operator.id], self._pipeline.tables[operator.id]
        sources = self._graph.sources_of(operator.id)
        open_from = window.open_from(self.watermark(operator.id))
        for each in sources:
            self._observe(work, each)
        after = self._watermark(operator.id, work.watermarks, work.time)
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

    def _late(self, work: EpochWork, operator: LateRowsSpec) -> DataFrame | None:
        """The rows that came too late for a window: as it stood before the epoch."""
        watermark = self.watermark(operator.window)
        rows = self._pipeline.derive(operator.input, work.rows, work.time)
        if rows is None or watermark is None or operator.window not in work.before:
            return None
        window = self._pipeline.windows[operator.window]
        return window.lost(rows, watermark, work.before[operator.window])

    def _update(self, work: EpochWork, operator: UpdatingQuerySpec) -> None:
        """Add an epoch's rows to what an updating query keeps, and give the changes of its
        result.
        """
        query = self._pipeline.updating[operator.id]
        given = [
            self._pipeline.derive(each.operator, work.rows, work.time) for each in operator.inputs
        ]
        inputs = [
            None if each is None else self._pipeline.timed(operator.id, each, work.time)
            for each in given
        ]
        work.rows[operator.id] = None
        watermark = self.watermark(operator.id)
        query.forget(watermark)
        delta = query.delta(inputs, work.time, watermark)
        if delta is None:
            return
        fault = self._faults.claim(FaultPoint.STATE_PARTIAL, work.epoch)
        with work.profile.measure("spark"):
            written = query.table.write(
                delta, work.epoch, self._plan.generation, time=work.time, fault=fault
            )
        work.late_rows[operator.id] = query.late_rows()
        work.kept_rows[operator.id] = written.kept_rows
        work.bytes_written += written.bytes
        work.rows[operator.id] = query.append(written.files, work.time)

    def _normalise(self, work: EpochWork, operator: NormaliseSpec) -> None:
        """Apply an epoch's changes to the rows that are kept by key, and give the changelog."""
        normaliser = self._pipeline.normalisers[operator.id]
        rows = self._pipeline.derive(operator.input, work.rows, work.time)
        work.rows[operator.id] = None
        if rows is None:
            return
        fault = self._faults.claim(FaultPoint.STATE_PARTIAL, work.epoch)
        with work.profile.measure("spark"):
            watched, observation = truncation(rows)
            delta = normaliser.delta(watched, work.epoch)
            written = normaliser.table.write(delta, work.epoch, self._plan.generation, fault=fault)
            at = truncated_at(observation)
            if at is not None:
                delta = normaliser.delta(rows, work.epoch, after=at)
                written = normaliser.table.write(delta, work.epoch, self._plan.generation)
        work.kept_rows[operator.id] = written.kept_rows
        work.bytes_written += written.bytes
        work.rows[operator.id] = normaliser.append(written.files, truncated=at is not None)

    def _key_table(self, operator: UpdatingQuerySpec | NormaliseSpec) -> KeyTable:
        if isinstance(operator, NormaliseSpec):
            return self._pipeline.normalisers[operator.id].table
        return self._pipeline.updating[operator.id].table

    def _stage(self, work: EpochWork, operator: SinkSpec) -> None:
        self._entered(work.epoch, operator.id)
        left = (
            None if operator.limit is None else operator.limit - work.rows_out.get(operator.id, 0)
        )
        rows = self._pipeline.derive(operator.id, work.rows, work.time)
        if rows is None or left == 0:
            work.staged[operator.id] = StagedOutput()
            return
        if self._graph.reads_changes(operator.id):
            rows = net_changes(rows)
        with work.profile.measure("spark"):
            sink = self._pipeline.sinks[operator.id]
            staged = sink.stage(rows, self._plan.job, work.epoch, self._plan.generation)
        # Spark's own limit would end the reading of sources early, and with it what is observed.
        work.staged[operator.id] = staged if left is None else staged.first(left)
        work.read.update(each.id for each in self._graph.upstream(operator.id))

    def metadata(self, work: EpochWork) -> list[OperatorCheckpointMetadata]:
        """What each operator leaves in the checkpoint of an epoch."""
        described = []
        for operator in self._graph.durable():
            watermark = _lowest(self._followed(operator.id, work.watermarks, work.time))
            input_range: InputRange | None = None
            timers: tuple[int, ...] = ()
            place = operator.place if isinstance(operator, SourceSpec | SinkSpec) else None
            if isinstance(operator, SourceSpec):
                input_range = work.inputs[operator.id]
                tables = {OFFSETS: TableCheckpoint(kind=TableKind.GLOBAL, values=input_range.end)}
            elif isinstance(operator, WindowAggregateSpec):
                table = self._pipeline.tables[operator.id]
                tables = {PARTIALS: table.checkpoint()}
                timers = work.timers[operator.id]
            elif isinstance(operator, UpdatingQuerySpec | NormaliseSpec):
                tables = {ROWS_TABLE: self._key_table(operator).checkpoint()}
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


def _lowest(watermarks: Iterable[int | None]) -> int | None:
    """The watermark of an operator: the lowest of its inputs, none as long as one of them has
    none.
    """
    marks = list(watermarks)
    known = [each for each in marks if each is not None]
    return min(known) if len(known) == len(marks) else None
