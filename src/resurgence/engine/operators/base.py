"""What every operator does. The driver of an epoch knows this, and none of the operators.

An operator is compiled once, from its spec and the columns of its inputs. Then it takes part in each
epoch, in this order:

    open       begin to read, if it reads something that is not an operator
    ingest     write what the epoch's rows change in its state: a Spark job
    output     the rows that it gives in this epoch, as a DataFrame that nothing has run yet
    stage      write rows to the outside, uncommitted: a Spark job
    observe    settle what the Spark jobs that read it have counted
    checkpoint what it leaves in the checkpoint
    promote    the epoch is sealed: its effects become the current state
    release    the epoch is over: drop what was cached

What an epoch changes is collected in its `EpochEffects`. An operator changes nothing of its own
before `promote`, so a failure anywhere leaves nothing to undo.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import DataFrame, SparkSession

from resurgence.engine.functions.planning_time import reads_planning_time, with_planning_time
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.lookup_cache import LookupCache
from resurgence.engine.tables.state_writer import Written
from resurgence.graph.specs import OperatorSpec
from resurgence.ids import Epoch, Generation, OperatorId
from resurgence.state.load_plan import OperatorLoad
from resurgence.state.paths import JobPaths
from resurgence.state.records import InputRange, TableCheckpoint

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


@dataclass(frozen=True)
class OperatorContext:
    """Where a pipeline is compiled."""

    spark: SparkSession
    state_url: str
    paths: JobPaths
    parallelism: int
    lookups: Mapping[str, LookupCache] = field(default_factory=dict)
    """The lookup tables, by name."""


@dataclass(frozen=True)
class CompactionTask:
    """Files of a state table that are worth merging."""

    replaced: frozenset[str]
    """Their paths."""
    write: Callable[[Epoch, Generation], Written]
    """Writes their rows anew, one Spark job."""


@dataclass(frozen=True)
class OperatorState:
    """What an operator leaves in a checkpoint."""

    tables: dict[str, TableCheckpoint]
    timers: tuple[int, ...] = ()
    input: InputRange | None = None
    place: str | None = None


class Rows(Protocol):
    """Gives the rows of each operator: those of an epoch, or of a part of its input that is tried
    by itself.
    """

    @property
    def time(self) -> int:
        """When the epoch was planned, in microseconds."""
        ...

    def rows(self, operator_id: OperatorId) -> DataFrame | None:
        """None: there are none, and it is known without asking Spark."""
        ...


class Operator(ABC):
    """One operator of a running pipeline."""

    spec: OperatorSpec
    shape: DataFrame
    """Its output, without rows."""

    def __init__(
        self, spec: OperatorSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        """`inputs` have the columns of its inputs, and no rows."""
        self.id = spec.id
        self.context = context
        self._input_ids = spec.input_ids
        self._reads_time = reads_planning_time(spec)
        self.input_shapes = [self.timed(each, 0) for each in inputs]

    def timed(self, rows: DataFrame, time: int) -> DataFrame:
        """Its input, with the planning time of the epoch if its expressions read it."""
        return with_planning_time(rows, time) if self._reads_time else rows

    def inputs(self, given: Rows) -> list[DataFrame | None]:
        """The rows of its inputs."""
        found = [given.rows(each) for each in self._input_ids]
        return [None if each is None else self.timed(each, given.time) for each in found]

    # ---------------------------------------------------------------- state

    live: LiveFiles | None = None
    """The files of its state table, if it has one."""
    table_schema: str | None = None
    """The schema of its state table, as its checkpoints have it."""

    def restore(self, load: OperatorLoad) -> None:
        """Take up what a load plan has of it."""

    def checkpoint(self, run: EpochRun) -> OperatorState | None:
        """What it leaves in the checkpoint of an epoch; None: nothing."""
        return None

    def promote(self, run: EpochRun) -> None:
        """Make the effects of an epoch that is sealed the current state."""
        self.live = run.effects.live.get(self.id, self.live)

    def compaction(self, time: int, watermark: int | None) -> CompactionTask | None:
        """Files worth merging, and their rows; `time` and watermark are those of the newest epoch."""
        return None

    # ---------------------------------------------------------------- an epoch

    def open(self, run: EpochRun) -> None:
        """Begin to read what the epoch reads."""

    def ingest(self, run: EpochRun) -> None:
        """Write what the rows of an epoch change in the state."""

    @abstractmethod
    def output(self, run: EpochRun) -> DataFrame | None:
        """The rows that it emits; of an operator with state, once it and its inputs have ingested
        theirs. None: there are none, and it is known without asking Spark.
        """

    def stage(self, run: EpochRun) -> None:
        """Write the rows of an epoch to the outside, uncommitted."""

    def observe(self, run: EpochRun) -> None:
        """Settle what was counted on the way, once a Spark job has read its rows. May be called
        more than once.
        """

    def release(self) -> None:
        """Drop what was cached for the last output."""

    def is_due(self, watermark: int | None) -> bool:
        """Whether it would give rows at a watermark, in an epoch without input."""
        return False

    # ---------------------------------------------------------------- failing input

    def probe(self, given: Rows) -> Iterator[DataFrame]:
        """What to compute of some rows to see whether they are what an epoch failed on. Nothing of
        it is written.
        """
        return iter(())

    def probe_output(self, given: Rows) -> DataFrame | None:
        """What it gives for such rows by themselves; None: nothing that could be tried."""
        return None


class TransparentOperator(Operator):
    """An operator without state: its rows are computed from those of its inputs alone."""

    @abstractmethod
    def apply(self, inputs: Sequence[DataFrame]) -> DataFrame:
        """Its rows."""

    def output(self, run: EpochRun) -> DataFrame | None:
        return self.probe_output(run)

    def probe_output(self, given: Rows) -> DataFrame | None:
        found = self.inputs(given)
        if all(each is None for each in found):
            return None
        return self.apply(
            [
                shape if rows is None else rows
                for rows, shape in zip(found, self.input_shapes, strict=True)
            ]
        )
