"""Tumbling windows: each epoch appends partial aggregates, and a window's rows appear when the
watermark passes it.

State is one TimeTable `partials`: bin, keys, partials. An epoch costs one Spark job with one
shuffle to append, and one without any to read and merge the bins that close, if any do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from resurgence.engine.operators.aggregates import plan_aggregate
from resurgence.engine.time_table import BIN, ROWS, SubtaskRows
from resurgence.graph.model import EVENT_TIME, WindowAggregateOperator
from resurgence.state.records import END_OF_TIME, StateFile

PARTIALS = "partials"
"""The name of the operator's table."""

BEGINNING_OF_TIME = -(2**62)
"""Before any bin there can be."""


class WindowAggregate:
    """The operator compiled against the types of its input."""

    def __init__(
        self, operator: WindowAggregateOperator, rows: DataFrame, shuffle_partitions: int
    ) -> None:
        self._shuffle_partitions = shuffle_partitions
        self._width = operator.width_micros
        self.keys = tuple(f"k{index}" for index in range(len(operator.keys)))
        plans = [
            plan_aggregate(call, f"a{index}", rows)
            for index, call in enumerate(operator.aggregates)
        ]
        partials = [each for plan in plans for each in plan.partials]
        micros = f"unix_micros(`{EVENT_TIME}`)"
        self._input = [
            f"{micros} - pmod({micros}, {self._width}L) AS {BIN}",
            *(f"{each.sql} AS {name}" for name, each in zip(self.keys, operator.keys, strict=True)),
            *(column for plan in plans for column in plan.inputs),
        ]
        # Columns are made once: to make one costs several calls into the JVM, and an epoch should
        # cost few.
        self._make = [F.expr(f"{each.make} AS {each.name}") for each in partials]
        self._merge = [F.expr(f"{each.merge} AS {each.name}") for each in partials]
        self._count_rows = F.expr(f"count(1) AS {ROWS}")
        self._group = [F.col(each) for each in (BIN, *self.keys)]
        self._output = [
            f"named_struct('start', timestamp_micros({BIN}), 'end', timestamp_micros({BIN} + {self._width}L))"
            " AS `window`",
            *(
                f"{name} AS `{each.name}`"
                for name, each in zip(self.keys, operator.keys, strict=True)
            ),
            *(
                f"{plan.finish} AS `{call.name}`"
                for plan, call in zip(plans, operator.aggregates, strict=True)
            ),
        ]
        self.schema: StructType = self.partials(rows).schema

    def partials(
        self, rows: DataFrame, *, count_rows: bool = False, spread: bool = False
    ) -> DataFrame:
        """An epoch's rows as partials, with `ROWS` of them if they are to be counted."""
        binned = rows.selectExpr(*self._input).where(f"{BIN} IS NOT NULL")
        if spread:
            binned = binned.repartition(self._shuffle_partitions, *self._group)
        counted = [self._count_rows] if count_rows else []
        return binned.groupBy(*self._group).agg(*self._make, *counted)

    def merged(self, subtasks: Sequence[SubtaskRows]) -> DataFrame:
        """Many partials of a group as one. Each subtask has all partials of its groups: no
        shuffle.
        """
        merged = [
            each.rows if each.unique else each.rows.groupBy(*self._group).agg(*self._merge)
            for each in subtasks
        ]
        return functools.reduce(DataFrame.union, merged)

    def results(self, partials: DataFrame) -> DataFrame:
        """What the user sees of closed windows."""
        return partials.selectExpr(*self._output)

    def timers(self, files: Iterable[StateFile], open_from: int) -> tuple[int, ...]:
        """When there is next something to close in each file: the end of its first open window."""
        return tuple(sorted({max(each.time_start, open_from) + self._width for each in files}))

    def open_from(self, watermark: int | None) -> int:
        """The start of the first window that a watermark has not passed."""
        if watermark is None:
            return BEGINNING_OF_TIME
        if watermark == END_OF_TIME:
            return END_OF_TIME
        return watermark - watermark % self._width
