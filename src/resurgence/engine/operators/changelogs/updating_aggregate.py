"""An updating query with one row of state per group: an aggregation with accumulators, or a Top-N
that stores the first rows of each key. Its state, and the changes of its result in an epoch.

State is one GroupTable `rows`: the accumulators of each group. An epoch aggregates its rows, adds
the partials to the accumulators of their groups and writes these. The changes are the result over
the new accumulators, and the retraction of the result over the previous ones. The results are
computed from stored bits, so a retraction is what was emitted.

If one Spark job alone reads the changes, that job also writes the state: `write_through`. Else a job
of its own writes it, and the changes are read from the new files.

`UpdatingQuery` computes all other updating queries, from stored rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from resurgence.engine.operators.aggregates.accumulators import AFTER, BEFORE
from resurgence.engine.operators.aggregates.aggregate_plan import SPREAD_ABOVE
from resurgence.engine.operators.changelogs.row_changes import RowChanges
from resurgence.engine.spark.empty_rows import empty_rows
from resurgence.engine.tables.group_table import HAD_ROW, GroupTable, previous
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.observed import observed
from resurgence.engine.tables.state_writer import GROUP, WriteThrough, Written
from resurgence.engine.tables.task_reports import TaskReports
from resurgence.faults import FaultAction
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.graph.values import EVENT_TIME
from resurgence.ids import Epoch, Generation
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import StateFile

_LATE = "__late"
_FEW_ROWS = 50_000
"""To shuffle so few rows takes less time than to aggregate them twice."""


class Groups(Protocol):
    """What a group stores: values that are made of an epoch's rows, and added to the stored ones.
    `Accumulators` and `StoredFirstRows`.
    """

    @property
    def keys(self) -> tuple[StructField, ...]: ...

    @property
    def values(self) -> tuple[StructField, ...]: ...

    def partials_of(
        self, rows: DataFrame, shuffled: Callable[[DataFrame], DataFrame], *, spread: bool
    ) -> DataFrame: ...

    def added(self, rows: DataFrame) -> DataFrame: ...

    def results(self, rows: DataFrame) -> DataFrame: ...

    def with_rows(self, rows: DataFrame) -> DataFrame: ...


class UpdatingAggregate:
    """The operator compiled against the types of its input."""

    def __init__(
        self,
        operator: UpdatingQuerySpec,
        accumulators: Groups,
        spark: SparkSession,
        *,
        url: str,
        folder: str,
        parallelism: int,
    ) -> None:
        self._operator = operator
        self._accumulators = accumulators
        self._spark = spark
        self._seen: Observation | None = None
        self._spread = True
        self._reports = TaskReports(spark, parallelism)
        self.table = GroupTable(
            url=url,
            folder=folder,
            keys=accumulators.keys,
            values=accumulators.values,
            parallelism=parallelism,
            ttl_micros=operator.ttl_micros,
        )
        nothing = empty_rows(spark, self.table.schema).selectExpr(
            "*",
            f"0 AS {GROUP}",
            f"false AS {HAD_ROW}",
            *(f"{each.name} AS {previous(each.name)}" for each in accumulators.values),
        )
        accumulators.added(nothing)
        kind = accumulators.results(nothing).schema[AFTER].dataType
        assert isinstance(kind, StructType)
        self._difference = RowChanges(BEFORE, AFTER, kind)
        self.shape = self._changes(nothing)
        """The columns of its changes, without rows: those of the query and `CHANGE`."""

    # ---------------------------------------------------------------- an epoch

    def delta(
        self, inputs: Sequence[DataFrame | None], time: int, watermark: int | None = None
    ) -> DataFrame | None:
        """Return the partials of an epoch's rows; None if there are none."""
        (rows,) = inputs
        self._seen = None
        if rows is None:
            return None
        if self._operator.keep_micros is not None and watermark is not None:
            bound = varying_literal(f"{watermark}L")
            late = f"coalesce(unix_micros(`{EVENT_TIME}`) < {bound}, false)"
            self._seen = Observation()
            marked = rows.selectExpr("*", f"{late} AS {_LATE}")
            marked = marked.observe(self._seen, F.expr(f"count_if({_LATE}) AS late"))
            rows = marked.where(f"NOT {_LATE}")
        partials = self._accumulators.partials_of(rows, self.table.shuffled, spread=self._spread)
        return self.table.gathered(partials)

    def late_rows(self) -> int:
        """Return how many rows of the last delta were late, once it is written."""
        return 0 if self._seen is None else observed(self._seen).get("late", 0)

    def write(
        self,
        delta: DataFrame,
        live: LiveFiles,
        epoch: Epoch,
        generation: Generation,
        time: int,
        *,
        watermark: int | None = None,
        fault: FaultAction | None = None,
    ) -> Written:
        """Add an epoch's partials to the accumulators of their groups, and write these."""
        added = self._added(delta, live, epoch, time, watermark)
        return self.table.write(added, epoch, generation, fault=fault)

    def write_through(
        self,
        delta: DataFrame,
        live: LiveFiles,
        epoch: Epoch,
        generation: Generation,
        time: int,
        *,
        watermark: int | None = None,
        fault: FaultAction | None = None,
    ) -> tuple[WriteThrough, DataFrame]:
        """Return a write that takes place when the changes are read, and the changes."""
        added = self._added(delta, live, epoch, time, watermark)
        write = self.table.write_through(added, epoch, generation, self._reports, fault=fault)
        return write, self._changes(write.rows)

    def measured(self, rows: int, groups: int) -> None:
        """Note how many rows and groups an epoch had: an estimate for the next one, which affects
        speed only, not results.
        """
        self._spread = rows < _FEW_ROWS or groups > rows * SPREAD_ABOVE

    def _added(
        self, delta: DataFrame, live: LiveFiles, epoch: Epoch, time: int, watermark: int | None
    ) -> DataFrame:
        valid_from = self._valid_from(time, watermark)
        rows = self.table.with_previous(delta, live, epoch, time, valid_from)
        return self._accumulators.added(rows)

    def changes(
        self,
        live: LiveFiles,
        files: tuple[StateFile, ...],
        time: int,
        watermark: int | None = None,
    ) -> DataFrame | None:
        """Return the changes of the result by new files, on top of the live ones; None if nothing
        was written.
        """
        if not files:
            return None
        valid_from = self._valid_from(time, watermark)
        return self._changes(self.table.changed(self._spark, live, files, valid_from))

    def _changes(self, rows: DataFrame) -> DataFrame:
        return self._difference.of(self._accumulators.results(rows))

    def release(self) -> None:
        """Nothing is cached."""

    # ---------------------------------------------------------------- expiry and compaction

    def unexpired(self, live: LiveFiles, watermark: int | None) -> LiveFiles:
        """Return the files without those in which all rows have expired by the watermark."""
        expires_before = self._expires_before(watermark)
        return live if expires_before is None else live.from_time(expires_before)

    def merged(
        self, live: LiveFiles, replaced: frozenset[str], time: int, watermark: int | None = None
    ) -> DataFrame:
        """Return the merged rows of some files, to be written as their replacement."""
        merged = self.table.merged(self._spark, live, replaced, self._valid_from(time, watermark))
        # An older row of such a group could be in another file.
        return self._accumulators.with_rows(merged) if replaced >= live.paths else merged

    def _valid_from(self, time: int, watermark: int | None) -> int | None:
        """Return the time before which rows have expired."""
        since = self.table.since(time)
        return self._expires_before(watermark) if since is None else since

    def _expires_before(self, watermark: int | None) -> int | None:
        retention = self._operator.keep_micros
        return None if retention is None or watermark is None else watermark - retention
