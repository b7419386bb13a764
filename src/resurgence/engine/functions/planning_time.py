"""The planning time of an epoch as a column of its rows: the value of `now()`.

An epoch records its planning time together with its input, so a replay computes the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.graph.specs import OperatorSpec
from resurgence.graph.values import PLANNED_AT
from resurgence.ids import OperatorId
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import InputRange

_EPOCH_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def micros(at: datetime) -> int:
    """Return an instant as microseconds since 1970."""
    return (at - _EPOCH_OF_TIME) // timedelta(microseconds=1)


def instant(micros: int) -> datetime:
    """Return microseconds since 1970 as an instant."""
    return _EPOCH_OF_TIME + timedelta(microseconds=micros)


def planned_micros(inputs: Mapping[OperatorId, InputRange]) -> int:
    """Return the planning time of an epoch, in microseconds."""
    return max(micros(each.planned_at) for each in inputs.values() if each.planned_at is not None)


def reads_planning_time(operator: OperatorSpec) -> bool:
    """Return whether an expression of the operator reads the planning time."""
    return f"`{PLANNED_AT}`" in operator.model_dump_json()


def with_planning_time(rows: DataFrame, time: int, column: str = PLANNED_AT) -> DataFrame:
    """Return rows with the planning time, in microseconds, as a column."""
    return rows.withColumn(column, F.expr(varying_literal(f"timestamp_micros({time}L)")))
