"""The protocol of every operator. The driver of an epoch knows this, and none of the operators.

An operator is compiled once, from its spec and the columns of its inputs. Then it takes part in
each epoch, in this order:

    open       start to read, if it reads something that is not an operator
    ingest     write what the epoch's rows change in its state: a Spark job
    output     return the rows that it emits in this epoch, as a DataFrame that has not run yet
    stage      write rows to an external system, uncommitted: a Spark job
    observe    collect what the Spark jobs that read it have counted and written
    checkpoint return its part of the checkpoint
    promote    make the effects of the sealed epoch the current state
    release    drop what was cached for the epoch

What an epoch changes is collected in its `EpochEffects`. An operator does not change its own state
before `promote`, so a failure anywhere leaves nothing to undo.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import DataFrame, SparkSession

from resurgence.engine.functions.planning_time import reads_planning_time, with_planning_time
from resurgence.engine.tables.cache_reads import CacheReads
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.lookup_cache import LookupCache
from resurgence.engine.tables.state_writer import Written
from resurgence.graph.specs import OperatorSpec
from resurgence.ids import Epoch, Generation, OperatorId
from resurgence.state.load_plan import OperatorLoad
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.decisions import EpochRange
from resurgence.state.records import InputRange, TableCheckpoint

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun


@dataclass(frozen=True)
class OperatorContext:
    """The environment in which a pipeline is compiled."""

    spark: SparkSession
    state_url: str
    paths: JobPaths
    parallelism: int
    lookups: Mapping[str, LookupCache] = field(default_factory=dict)
    """The lookup tables, by name."""
    dead: tuple[EpochRange, ...] = ()
    """The epochs that were rolled back."""


@dataclass(frozen=True)
class CompactionTask:
    """Files of a state table that are worth merging."""

    replaced: frozenset[str]
    """Their paths."""
    write: Callable[[Epoch, Generation], Written]
    """Rewrites their rows, in one or several Spark jobs, outside of the thread of the epochs."""


_MOST_SHARES = 8
"""Each share of a merge is a job with a task for every subtask."""


def shares_of(live: LiveFiles, cores: int) -> list[LiveFiles]:
    """Return the files of a table in shares that are merged one after the other: so many subtasks
    at once that half of the cores are left. Spark runs the tasks of an older job first, so an epoch
    would wait for a merge that has a task for every core.
    """
    parallelism = live.parallelism
    size = max(1, cores // 2, -(-parallelism // _MOST_SHARES))
    return [live.only(range(start, start + size)) for start in range(0, parallelism, size)]


def merge_in_shares(
    spark: SparkSession,
    live: LiveFiles,
    merged: Callable[[LiveFiles], DataFrame],
    write: Callable[[DataFrame, Epoch, Generation], Written],
) -> Callable[[Epoch, Generation], Written]:
    """Return a function that merges and writes the files of a table, in shares."""

    def write_all(epoch: Epoch, generation: Generation) -> Written:
        shares = shares_of(live, spark.sparkContext.defaultParallelism)
        return functools.reduce(
            Written.plus, (write(merged(each), epoch, generation) for each in shares)
        )

    return write_all


@dataclass(frozen=True)
class OperatorState:
    """An operator's part of a checkpoint."""

    tables: dict[str, TableCheckpoint]
    timers: tuple[int, ...] = ()
    input: InputRange | None = None
    place: str | None = None


class Rows(Protocol):
    """Provides the rows of each operator: those of an epoch, or of a part of its input that is
    probed.
    """

    @property
    def time(self) -> int:
        """When the epoch was planned, in microseconds."""
        ...

    def rows(self, operator_id: OperatorId) -> DataFrame | None:
        """Return the rows of an operator; None if it is known without Spark that there are none."""
        ...


class Operator(ABC):
    """One operator of a running pipeline."""

    spec: OperatorSpec
    shape: DataFrame
    """Its output columns, as a DataFrame without rows."""

    def __init__(
        self, spec: OperatorSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        """`inputs` are empty and have the columns of its inputs."""
        self.id = spec.id
        self.context = context
        self._input_ids = spec.input_ids
        self._reads_time = reads_planning_time(spec)
        self.input_shapes = [self.timed(each, 0) for each in inputs]

    def timed(self, rows: DataFrame, time: int) -> DataFrame:
        """Return its input, with the planning time of the epoch if its expressions read it."""
        return with_planning_time(rows, time) if self._reads_time else rows

    def inputs(self, upstream: Rows) -> list[DataFrame | None]:
        """Return the rows of its inputs."""
        found = [upstream.rows(each) for each in self._input_ids]
        return [None if each is None else self.timed(each, upstream.time) for each in found]

    # ---------------------------------------------------------------- state

    live: LiveFiles | None = None
    """The files of its state table, if it has one."""
    table_schema: str | None = None
    """The schema of its state table, as in its checkpoints."""

    def restore(self, load: OperatorLoad) -> None:
        """Restore its state from a load plan."""

    def checkpoint(self, run: EpochRun) -> OperatorState | None:
        """Return its part of the checkpoint of an epoch; None if it has none."""
        return None

    def promote(self, run: EpochRun) -> None:
        """Make the effects of a sealed epoch the current state."""
        self.live = run.effects.live.get(self.id, self.live)

    def compaction(self, time: int, watermark: int | None) -> CompactionTask | None:
        """Return the files worth merging; `time` and watermark are those of the newest epoch."""
        return None

    def cache_reads(self) -> CacheReads:
        """Return how often the tasks of its epochs have read files of its state so far."""
        return CacheReads()

    # ---------------------------------------------------------------- an epoch

    def open(self, run: EpochRun) -> None:
        """Start to read the input of the epoch."""

    def ingest(self, run: EpochRun) -> None:
        """Write what the rows of an epoch change in the state."""

    @abstractmethod
    def output(self, run: EpochRun) -> DataFrame | None:
        """Return the rows that it emits; None if it is known without Spark that there are none. An
        operator with state, and its inputs, must have ingested theirs before.
        """

    def stage(self, run: EpochRun) -> None:
        """Write the rows of an epoch to an external system, uncommitted."""

    def has_to_write(self) -> bool:
        """Return whether its state is written by the job of the sink that reads its rows."""
        return False

    def observe(self, run: EpochRun) -> None:
        """Collect what was counted and written while a Spark job read its rows. Idempotent."""

    def release(self) -> None:
        """Drop cached rows of the last output."""

    def is_due(self, watermark: int | None) -> bool:
        """Return whether it would emit rows at a watermark, in an epoch without input."""
        return False

    # ---------------------------------------------------------------- failing input

    def probe(self, upstream: Rows) -> Iterator[DataFrame]:
        """Yield DataFrames to compute in order to find out whether an epoch failed on some rows.
        Nothing is written.
        """
        return iter(())

    def probe_output(self, upstream: Rows) -> DataFrame | None:
        """Return its output for such rows alone; None if there is nothing to probe."""
        return None


class TransparentOperator(Operator):
    """An operator without state: its rows are computed from those of its inputs alone."""

    @abstractmethod
    def apply(self, inputs: Sequence[DataFrame]) -> DataFrame:
        """Return its rows."""

    def output(self, run: EpochRun) -> DataFrame | None:
        return self.probe_output(run)

    def probe_output(self, upstream: Rows) -> DataFrame | None:
        found = self.inputs(upstream)
        if all(each is None for each in found):
            return None
        return self.apply(
            [
                shape if rows is None else rows
                for rows, shape in zip(found, self.input_shapes, strict=True)
            ]
        )
