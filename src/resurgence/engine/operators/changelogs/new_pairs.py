"""The changes of an inner join of two append-only streams: the pairs of rows of which at least one
is new. None is ever retracted, so the join is computed once, and not before and after the epoch.

A side needs its own new rows, and of its older rows only those whose key the other side's new rows
have. So an epoch reads no more than it joins: a key with many rows on both sides costs only what
the new rows of one find on the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors.exact_rows import quoted
from resurgence.engine.tables.key_table import NEW
from resurgence.graph.specs.updating_query import InnerJoin
from resurgence.graph.values import CHANGE
from resurgence.spark_plans.projection import Projection

_TIMES = "__times"


class NewPairs:
    """An inner join, parsed once."""

    def __init__(self, join: InnerJoin, sides: Sequence[Sequence[tuple[str, str]]]) -> None:
        """`sides` are the columns of both: the name in the table, and in the join."""
        self._sides = [
            Projection(
                *(f"{stored} AS {quoted(name)}" for stored, name in columns),
                f"{NEW} AS {NEW}_{number}",
                # Merged files count equal rows.
                f"explode(array_repeat(0, CAST({CHANGE} AS INT))) AS {_TIMES}_{number}",
            )
            for number, columns in enumerate(sides)
        ]
        self._condition = F.expr(f"({join.condition}) AND ({NEW}_0 OR {NEW}_1)")
        self._results = Projection(
            *(f"{each.sql} AS {quoted(each.name)}" for each in join.results), f"1 AS {CHANGE}"
        )

    def of(self, left: DataFrame, right: DataFrame) -> DataFrame:
        """Return the changes, from the rows of both sides in the columns of the table."""
        # Spark assumes that the output of a task is small, and would send it to the driver.
        one, other = (
            side.of(rows).hint("merge")
            for side, rows in zip(self._sides, (left, right), strict=True)
        )
        return self._results.of(one.join(other, self._condition, "inner"))
