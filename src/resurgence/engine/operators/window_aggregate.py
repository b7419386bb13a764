"""Tumbling windows: each epoch appends partial aggregates, and a window's rows appear when the
watermark passes it.

State is one TimeTable `partials`: bin, keys, partials. An epoch costs one Spark job with one
shuffle to append, and one with one shuffle to read and merge the bins that close, if any do.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from resurgence.engine.operators.aggregates import plan_aggregate
from resurgence.engine.time_table import BIN
from resurgence.graph.model import EVENT_TIME, WindowAggregateOperator
from resurgence.state.records import END_OF_TIME

LATE = "late"
"""The name of the observed count of rows that came after their window had closed."""

PARTIALS = "partials"
"""The name of the operator's table."""


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
        self.schema: StructType = self.partials(rows, None, None).schema

    def partials(
        self,
        rows: DataFrame,
        watermark: int | None,
        late: Observation | None,
        *,
        spread: bool = False,
    ) -> DataFrame:
        """An epoch's rows as partials; rows of windows that have closed are counted and left
        out.
        """
        binned = rows.selectExpr(*self._input).where(f"{BIN} IS NOT NULL")
        if watermark is not None and late is not None:
            behind = f"{BIN} <= {self.newest_closed(watermark)}L"
            binned = binned.observe(late, F.expr(f"count_if({behind}) AS {LATE}")).where(
                f"NOT ({behind})"
            )
        if spread:
            binned = binned.repartition(self._shuffle_partitions, *self._group)
        return binned.groupBy(*self._group).agg(*self._make)

    def merged(self, subtasks: Sequence[DataFrame]) -> DataFrame:
        """Many partials of a group as one. Each subtask has all partials of its groups: no
        shuffle.
        """
        merged = [each.groupBy(*self._group).agg(*self._merge) for each in subtasks]
        return functools.reduce(DataFrame.union, merged)

    def results(self, subtasks: Sequence[DataFrame]) -> DataFrame:
        """What the user sees of closed windows."""
        return self.merged(subtasks).selectExpr(*self._output)

    def newest_closed(self, watermark: int) -> int:
        """The start of the newest window that this watermark has passed."""
        if watermark == END_OF_TIME:
            return END_OF_TIME - self._width
        return watermark - watermark % self._width - self._width
