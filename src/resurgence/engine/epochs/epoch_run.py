"""An epoch being executed, as its operators see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.contract import StagedOutput
from resurgence.engine.epochs.timeline import Timeline, Work
from resurgence.engine.operators.base import Operator
from resurgence.engine.operators.dead_letters import PoisonRow
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.state_writer import Written
from resurgence.faults import FaultAction, FaultInjector, FaultPoint
from resurgence.graph.model import Graph
from resurgence.graph.watermarks import operator_watermark
from resurgence.ids import Epoch, OperatorId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import InputRange, RecordPosition


@dataclass
class EpochEffects:
    """All changes of an epoch. They become current when the epoch is sealed, not before."""

    watermarks: dict[OperatorId, int | None] = field(default_factory=dict)
    """Of the sources."""
    partition_watermarks: dict[OperatorId, dict[str, int]] = field(default_factory=dict)
    """Of the partitions of sources that have partitions."""
    record_times: dict[OperatorId, Mapping[str, int]] = field(default_factory=dict)
    """By source and partition with unread rows: when the newest record that was read was written,
    in microseconds.
    """
    live: dict[OperatorId, LiveFiles] = field(default_factory=dict)
    """Of the operators with state tables."""
    timers: dict[OperatorId, tuple[int, ...]] = field(default_factory=dict)
    staged: dict[OperatorId, StagedOutput] = field(default_factory=dict)
    rows_in: dict[OperatorId, int] = field(default_factory=dict)
    bad_rows: dict[OperatorId, int] = field(default_factory=dict)
    dead_rows: dict[OperatorId, int] = field(default_factory=dict)
    dead_letters: dict[OperatorId, StagedOutput] = field(default_factory=dict)
    """Of the sources that have some."""
    late_rows: dict[OperatorId, int] = field(default_factory=dict)
    partly_late_rows: dict[OperatorId, int] = field(default_factory=dict)
    kept_rows: dict[OperatorId, int] = field(default_factory=dict)
    bytes_written: int = 0

    def wrote(self, operator_id: OperatorId, written: Written) -> None:
        """Count the rows and bytes that an operator wrote to its table."""
        self.kept_rows[operator_id] = written.kept_rows
        self.bytes_written += written.bytes


@dataclass
class EpochRun:
    """One epoch: its inputs, and the effects of its operators so far."""

    epoch: Epoch
    began_at: datetime
    time: int
    """When it was planned, in microseconds."""
    inputs: dict[OperatorId, InputRange]
    timeline: Timeline
    spark: SparkSession
    graph: Graph
    operators: Mapping[OperatorId, Operator]
    plan: LoadPlan
    faults: FaultInjector
    entered: Callable[[Epoch, OperatorId], None]
    watermarks_before: Mapping[OperatorId, int | None]
    """Of the sources, at the end of the previous epoch."""
    time_before: int | None
    """When the previous epoch was planned."""
    rows_out: Mapping[OperatorId, int] = field(default_factory=dict)
    """How many rows each sink has written in earlier epochs."""
    max_dead_letters: int = 0
    poison: Mapping[OperatorId, Mapping[RecordPosition, PoisonRow]] = field(default_factory=dict)
    """Why the excluded records of each source are excluded, if this process has found them."""
    effects: EpochEffects = field(default_factory=EpochEffects)
    outputs: dict[OperatorId, DataFrame | None] = field(default_factory=dict)
    were_read: set[OperatorId] = field(default_factory=set)
    """The operators whose rows a Spark job has read."""

    def enter(self, operator: Operator) -> None:
        """Report that an operator starts."""
        self.entered(self.epoch, operator.id)

    def work_of(self, operator: Operator) -> AbstractContextManager[None]:
        """Note in the timeline that an operator works."""
        return self.timeline.within(Work.OPERATOR, operator.id)

    def state_work_of(self, operator: Operator) -> AbstractContextManager[None]:
        """Note in the timeline that an operator writes state in a job that does nothing else."""
        return self.timeline.within(Work.STATE, operator.id)

    def rows(self, operator_id: OperatorId) -> DataFrame | None:
        if operator_id not in self.outputs:
            operator = self.operators[operator_id]
            with self.work_of(operator):
                self.outputs[operator_id] = operator.output(self)
        return self.outputs[operator_id]

    def ran_over_inputs(self, operator: Operator) -> None:
        """Note that a Spark job has read everything upstream of an operator."""
        self.were_read.update(each.id for each in self.graph.upstream(operator.id))

    def watermark_before(self, operator_id: OperatorId) -> int | None:
        """Return the watermark of an operator before the epoch."""
        return operator_watermark(self.graph, operator_id, self.watermarks_before, self.time_before)

    def watermark_after(self, operator_id: OperatorId) -> int | None:
        """Return the watermark of an operator after the epoch, once its sources were read."""
        for source in self.graph.sources_of(operator_id):
            self.operators[source].observe(self)
        return operator_watermark(self.graph, operator_id, self.effects.watermarks, self.time)

    def live(self, operator: Operator) -> LiveFiles:
        """Return the files of an operator's table, with the effects of the epoch so far."""
        current = self.effects.live.get(operator.id, operator.live)
        assert current is not None
        return current

    def state_fault(self) -> FaultAction | None:
        """Return the fault to inject while state is written, if one is due."""
        return self.faults.claim(FaultPoint.STATE_PARTIAL, self.epoch)
