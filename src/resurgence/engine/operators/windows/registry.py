"""The window kinds, by name."""

from __future__ import annotations

from pyspark.sql import DataFrame

from resurgence.engine.operators.windows.asof_join import AsofJoin
from resurgence.engine.operators.windows.cumulate_aggregate import CumulateAggregate
from resurgence.engine.operators.windows.hop_aggregate import HopAggregate
from resurgence.engine.operators.windows.session_aggregate import SessionAggregate
from resurgence.engine.operators.windows.window_aggregate import WindowAggregate
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec

_KINDS: dict[str, type[WindowAggregate]] = {
    "tumble": WindowAggregate,
    "hop": HopAggregate,
    "cumulate": CumulateAggregate,
    "session": SessionAggregate,
    "asof": AsofJoin,
}


def compile_window(
    operator: WindowAggregateSpec, rows: DataFrame, shuffle_partitions: int
) -> WindowAggregate:
    """Compile a window against the types of its input."""
    return _KINDS[operator.window](operator, rows, shuffle_partitions)
