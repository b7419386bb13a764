"""Windows: each epoch appends partial aggregates, and a window's rows appear when the watermark
passes it.

State is one TimeTable `partials`: bin, keys, partials. An epoch costs one Spark job with one
shuffle to append, and one without any to read and merge the bins that close, if any do. This module
has what all windows share, and tumbling windows, whose bins are the windows themselves;
`hop_aggregate` and `session_aggregate` have the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from resurgence.engine.operators.aggregates.aggregate_plan import Partial
from resurgence.engine.operators.aggregates.planner import plan_aggregate
from resurgence.engine.tables.time_table import BIN, ROWS, SubtaskRows
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.graph.values import EVENT_TIME
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.state.records import StateFile

PARTIALS = "partials"
"""The name of the operator's table."""

BEGINNING_OF_TIME = -(2**62)
"""Before any bin there can be."""


class WindowAggregate:
    """The operator compiled against the types of its input."""

    start = BIN
    """Where a window starts, in the columns of its partials."""
    spans: tuple[Partial, ...] = ()
    """Partials that say where a window is, if the bin does not."""

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
        # Columns are made once: to make one costs several calls into the JVM, and an epoch should
        # cost few.
        self._make = [F.expr(f"{each.make} AS {each.name}") for each in partials]
        self._merge = [F.expr(f"{each.merge} AS {each.name}") for each in partials]
        self._count_rows = F.expr(f"count(1) AS {ROWS}")
        self._group = [F.col(each) for each in (BIN, *self.keys)]
        named = [
            *zip(self.keys, (each.name for each in operator.keys), strict=True),
            *((f"r{index}", call.name) for index, call in enumerate(operator.aggregates)),
        ]
        finished = [
            (f"r{index}", plan.finish) for index, plan in enumerate(plans) if plan.kept is None
        ]
        self._finish = [
            f"{self.start} AS start",
            f"{self.end} AS end",
            *self.keys,
            *(f"{sql} AS {name}" for name, sql in finished),
        ]
        kept = [each for each in plans if each.kept is not None]
        self._kept = [f"{each.kept} AS {each.partials[0].name}" for each in kept]
        self._values = (
            f"inline_outer(arrays_zip({', '.join(each.partials[0].name for each in kept)}))"
        )
        self._alone = [name for name, _ in finished]
        self._over_values = [
            *(F.expr(f"first({name}) AS {name}") for name in self._alone),
            *(
                F.expr(f"{plan.finish} AS r{index}")
                for index, plan in enumerate(plans)
                if plan.kept is not None
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
        """The columns that fix which subtask holds a partial."""
        return (BIN, *self.keys)

    @property
    def end(self) -> str:
        """Where a window ends, over the columns of its partials."""
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
        """An epoch's rows as partials, with `ROWS` of them if they are to be counted. The watermark
        is that of the epoch's start.
        """
        binned = self._binned(rows, self.width)
        if spread:
            binned = binned.repartition(self._shuffle_partitions, *self._group)
        return self._made(binned, count_rows)

    def _binned(self, rows: DataFrame, width: int) -> DataFrame:
        """The columns of the input that are needed, in bins of a width."""
        bins = f"{self._aligned(f'unix_micros(`{EVENT_TIME}`)', width)} AS {BIN}"
        return rows.selectExpr(bins, *self._input).where(f"{BIN} IS NOT NULL")

    def _aligned(self, micros: str, width: int) -> str:
        """The last instant at or before another one at which a span of a width begins."""
        shifted = f"{micros} - {self.offset}L" if self.offset else micros
        return f"{micros} - pmod({shifted}, {width}L)"

    def _made(self, binned: DataFrame, count_rows: bool) -> DataFrame:
        counted = [self._count_rows] if count_rows else []
        return binned.groupBy(*self._group).agg(*self._make, *counted)

    def _by_keys(self, rows: DataFrame) -> DataFrame:
        """Rows shuffled by their keys; without any, all in one place."""
        if not self.keys:
            return rows.repartition(1)
        return rows.repartition(self._shuffle_partitions, *self.keys)

    # ---------------------------------------------------------------- state

    def merged(self, subtasks: Sequence[SubtaskRows]) -> DataFrame:
        """Many partials of a bin and its keys as one. Each subtask has all of them: no shuffle."""
        return together([self._merged_one(each) for each in subtasks])

    def _merged_one(self, subtask: SubtaskRows) -> DataFrame:
        if subtask.unique:
            return subtask.rows
        return self._merged_by(subtask.rows, self._group)

    def _merged_by(self, rows: DataFrame, group: Sequence[Column | str]) -> DataFrame:
        return rows.groupBy(*group).agg(*self._merge)

    def bins_to_close(self, open_from: int, still_open_from: int) -> tuple[int, int]:
        """The bins that windows need which were open and are no longer, as [first, end)."""
        return open_from, still_open_from

    def closed(
        self, subtasks: Sequence[SubtaskRows], open_from: int, still_open_from: int
    ) -> DataFrame:
        """What the user sees of the windows that close, from the partials in their bins."""
        return together([self.results(self._merged_one(each)) for each in subtasks])

    def carried(self, subtasks: Sequence[SubtaskRows], still_open_from: int) -> DataFrame | None:
        """Partials in bins that close which a window needs that does not, in a bin that stays."""
        return None

    def results(self, partials: DataFrame) -> DataFrame:
        """What the user sees of windows, each of which is one row of partials."""
        finished = partials.selectExpr(*self._finish, *self._kept)
        if self._kept:
            values = finished.selectExpr("start", "end", *self.keys, *self._alone, self._values)
            finished = values.groupBy("start", "end", *self.keys).agg(*self._over_values)
        return finished.selectExpr(*self._output)

    def timers(self, files: Iterable[StateFile], open_from: int) -> tuple[int, ...]:
        """When there is next something to close in each file: the end of its first open window."""
        return tuple(sorted({max(each.time_start, open_from) + self.width for each in files}))

    def open_from(self, watermark: int | None) -> int:
        """The first bin that a watermark has not passed. Rows of earlier ones are late."""
        if watermark is None:
            return BEGINNING_OF_TIME
        if watermark == END_OF_TIME:
            return END_OF_TIME
        return self._first_open(watermark)

    def late_before(self, watermark: int) -> int:
        """Rows with an event time before this belong to windows that have closed."""
        return self.open_from(watermark)

    def partly_late_before(self, open_from: int) -> int:
        """Rows in earlier bins came too late for some of their windows."""
        return open_from

    def late_bins(self, open_from: int) -> tuple[int, int] | None:
        """The bins of windows that take late rows, as [first, end). None: no window takes any."""
        return None

    def kept_late(
        self, rows: DataFrame, watermark: int, subtasks: Sequence[SubtaskRows]
    ) -> DataFrame:
        """Partials of the late rows that a window in state still takes, with `ROWS`. `subtasks`
        hold what was in these windows when the epoch began.
        """
        raise AssertionError("late_bins() says that this window takes no late rows")

    def lost(self, rows: DataFrame, watermark: int, subtasks: Sequence[SubtaskRows]) -> DataFrame:
        """The late rows that no window takes, as they came."""
        return rows.where(f"unix_micros(`{EVENT_TIME}`) < {self.late_before(watermark)}L")

    def _first_open(self, watermark: int) -> int:
        return watermark - (watermark - self.offset) % self.width


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """The rows of all subtasks."""
    return functools.reduce(DataFrame.union, parts)
