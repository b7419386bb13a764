"""Windows: each epoch appends partial aggregates, and a window emits its rows when the watermark
passes it.

State is one TimeTable `partials`: bin, keys, partials. An epoch costs one Spark job with one
shuffle to append, and one without a shuffle to read and merge the bins that close, if any. This
module has what all windows share, and tumbling windows, whose bins are the windows themselves.
`hop_aggregate`, `cumulate_aggregate` and `session_aggregate` have the other kinds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from resurgence.engine.operators.aggregates.aggregate_plan import Partial
from resurgence.engine.operators.aggregates.planner import plan_aggregate
from resurgence.engine.tables.time_table import BIN, ROWS, Admission, SubtaskRows
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.graph.values import EVENT_TIME
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.spark_plans.projection import Projection
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import StateFile

PARTIALS = "partials"
"""The name of the operator's table."""

BEGINNING_OF_TIME = -(2**62)
"""Before any possible bin."""


class WindowAggregate:
    """The operator compiled against the types of its input."""

    start = BIN
    """SQL for the start of a window, over the columns of its partials."""
    spans: tuple[Partial, ...] = ()
    """Partials with the bounds of a window, if the bin does not determine them."""

    def __init__(
        self, operator: WindowAggregateSpec, rows: DataFrame, shuffle_partitions: int
    ) -> None:
        self._shuffle_partitions = shuffle_partitions
        self.width = operator.width_micros
        self.offset = operator.offset_micros
        self.keys = tuple(f"k{index}" for index in range(len(operator.keys)))
        plans = [
            plan_aggregate(call, f"a{index}", rows)
            for index, call in enumerate(operator.aggregates)
        ]
        partials = [*self.spans, *(each for plan in plans for each in plan.partials)]
        self.partial_names = tuple(each.name for each in partials)
        self._keys = [
            f"{each.sql} AS {name}" for name, each in zip(self.keys, operator.keys, strict=True)
        ]
        self._input = [*self._keys, *(column for plan in plans for column in plan.inputs)]
        self._readings: dict[int, Projection] = {}
        """What is selected from the input, by the width of its bins."""
        # Columns are created once, because each costs several calls into the JVM.
        self._make = [F.expr(f"{each.make} AS {each.name}") for each in partials]
        self._merge = [F.expr(f"{each.merge} AS {each.name}") for each in partials]
        self._count_rows = F.expr(f"count(1) AS {ROWS}")
        self._group = [F.col(each) for each in (BIN, *self.keys)]
        named = [
            *zip(self.keys, (each.name for each in operator.keys), strict=True),
            *((f"r{index}", call.name) for index, call in enumerate(operator.aggregates)),
        ]
        finished = [
            (f"r{index}", plan.finish) for index, plan in enumerate(plans) if plan.buffer is None
        ]
        self._finish = [
            f"{self.start} AS start",
            f"{self.end} AS end",
            *self.keys,
            *(f"{sql} AS {name}" for name, sql in finished),
        ]
        buffered = [each for each in plans if each.buffer is not None]
        self._buffers = [f"{each.buffer} AS {each.partials[0].name}" for each in buffered]
        self._values = (
            f"inline_outer(arrays_zip({', '.join(each.partials[0].name for each in buffered)}))"
        )
        self._merged_results = [name for name, _ in finished]
        self._over_values = [
            *(F.expr(f"first({name}) AS {name}") for name in self._merged_results),
            *(
                F.expr(f"{plan.finish} AS r{index}")
                for index, plan in enumerate(plans)
                if plan.buffer is not None
            ),
        ]
        self._output = [
            "named_struct('start', timestamp_micros(start), 'end', timestamp_micros(end)) AS `window`",
            *(f"{column} AS `{name}`" for column, name in named),
            f"timestamp_micros(end - 1) AS `{EVENT_TIME}`",
        ]
        self.schema: StructType = self.partials(rows).schema

    @property
    def hashed(self) -> tuple[str, ...]:
        """The columns that determine the subtask of a partial."""
        return (BIN, *self.keys)

    @property
    def end(self) -> str:
        """SQL for the end of a window, over the columns of its partials."""
        return f"{BIN} + {self.width}L"

    # ---------------------------------------------------------------- an epoch's rows

    def partials(
        self,
        rows: DataFrame,
        watermark: int | None = None,
        *,
        count_rows: bool = False,
        spread: bool = False,
    ) -> DataFrame:
        """Return an epoch's rows as partials, with `ROWS` if `count_rows` is set. The watermark is
        that of the epoch's start.
        """
        binned = self._binned(rows, self.width)
        if spread:
            binned = binned.repartition(self._shuffle_partitions, *self._group)
        return self._made(binned, count_rows)

    def _binned(self, rows: DataFrame, width: int) -> DataFrame:
        """Return the required columns of the input, in bins of a width."""
        return self._reading(width).of(rows).where(f"{BIN} IS NOT NULL")

    def _reading(self, width: int) -> Projection:
        if width not in self._readings:
            bins = f"{self._aligned(f'unix_micros(`{EVENT_TIME}`)', width)} AS {BIN}"
            self._readings[width] = Projection(bins, *self._input)
        return self._readings[width]

    def _aligned(self, micros: str, width: int) -> str:
        """Return SQL for the start of the span of a width that contains an instant."""
        shifted = f"{micros} - {self.offset}L" if self.offset else micros
        return f"{micros} - pmod({shifted}, {width}L)"

    def _made(self, binned: DataFrame, count_rows: bool) -> DataFrame:
        counted = [self._count_rows] if count_rows else []
        return binned.groupBy(*self._group).agg(*self._make, *counted)

    def _made_by_keys(self, binned: DataFrame, count_rows: bool, spread: bool) -> DataFrame:
        """Return partials, with all bins of a key in one partition."""
        if spread:
            return self._made(self._by_keys(binned), count_rows)
        # With few groups, the second shuffle is small.
        return self._by_keys(self._made(binned, count_rows))

    def _by_keys(self, rows: DataFrame) -> DataFrame:
        """Shuffle rows by their keys; without keys, into one partition."""
        if not self.keys:
            return rows.repartition(1)
        return rows.repartition(self._shuffle_partitions, *self.keys)

    # ---------------------------------------------------------------- state

    def merged(self, subtasks: Sequence[SubtaskRows]) -> DataFrame:
        """Merge the partials of each bin and keys. Each subtask has all of them, so without a
        shuffle.
        """
        return together([self._merged_one(each) for each in subtasks])

    def _merged_one(self, subtask: SubtaskRows) -> DataFrame:
        if subtask.unique:
            return subtask.rows
        return self._merged_by(subtask.rows, self._group)

    def _merged_by(self, rows: DataFrame, group: Sequence[Column | str]) -> DataFrame:
        return rows.groupBy(*group).agg(*self._merge)

    def bins_to_close(self, open_from: int, still_open_from: int) -> tuple[int, int]:
        """Return the bins of windows that close, as [first, end)."""
        return open_from, still_open_from

    def closed(
        self, subtasks: Sequence[SubtaskRows], open_from: int, still_open_from: int
    ) -> DataFrame:
        """Return the results of the windows that close, from the partials in their bins."""
        return together([self.results(self._merged_one(each)) for each in subtasks])

    def carried(self, subtasks: Sequence[SubtaskRows], still_open_from: int) -> DataFrame | None:
        """Return partials in closing bins that an open window needs, moved to an open bin."""
        return None

    def results(self, partials: DataFrame) -> DataFrame:
        """Return the results of windows, each of which is one row of partials."""
        finished = partials.selectExpr(*self._finish, *self._buffers)
        if self._buffers:
            values = finished.selectExpr(
                "start", "end", *self.keys, *self._merged_results, self._values
            )
            finished = values.groupBy("start", "end", *self.keys).agg(*self._over_values)
        return finished.selectExpr(*self._output)

    def timers(self, files: Iterable[StateFile], open_from: int) -> tuple[int, ...]:
        """Return the next timer of each file: the end of its first open window."""
        return tuple(sorted({max(each.time_start, open_from) + self.width for each in files}))

    def open_from(self, watermark: int | None) -> int:
        """Return the first bin that a watermark has not passed. Rows of earlier bins are late."""
        if watermark is None:
            return BEGINNING_OF_TIME
        if watermark == END_OF_TIME:
            return END_OF_TIME
        return self._first_open(watermark)

    def late_before(self, watermark: int) -> int:
        """Return the event time before which rows belong to closed windows."""
        return self.open_from(watermark)

    def admission(self, watermark: int | None) -> Admission:
        """Return which rows are late at a watermark, for all of their windows or for some."""
        open_from = self.open_from(watermark)
        return Admission(open_from, open_from, open_from)

    def late_bins(self, open_from: int) -> tuple[int, int] | None:
        """Return the bins of windows that accept late rows, as [first, end); None if none does."""
        return None

    def accepted_late(
        self, rows: DataFrame, watermark: int, subtasks: Sequence[SubtaskRows]
    ) -> DataFrame:
        """Return partials, with `ROWS`, of the late rows that an open window accepts. `subtasks`
        has the state of these windows at the start of the epoch.
        """
        raise AssertionError("late_bins() returned None: this window accepts no late rows")

    def rejected_late(
        self, rows: DataFrame, watermark: int, subtasks: Sequence[SubtaskRows]
    ) -> DataFrame:
        """Return the late rows that no window accepts, unchanged."""
        bound = varying_literal(f"{self.late_before(watermark)}L")
        return rows.where(f"unix_micros(`{EVENT_TIME}`) < {bound}")

    def _first_open(self, watermark: int) -> int:
        return watermark - (watermark - self.offset) % self.width


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all subtasks."""
    return functools.reduce(DataFrame.union, parts)
