"""The planning time of an epoch as a column of its rows: what `now()` means.

An epoch records when it was planned together with its input, so a replay computes the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.graph.specs import OperatorSpec
from resurgence.graph.values import PLANNED_AT
from resurgence.ids import OperatorId
from resurgence.state.records import InputRange

_EPOCH_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def micros(at: datetime) -> int:
    """An instant as microseconds since 1970."""
    return (at - _EPOCH_OF_TIME) // timedelta(microseconds=1)


def instant(micros: int) -> datetime:
    """Microseconds since 1970 as an instant."""
    return _EPOCH_OF_TIME + timedelta(microseconds=micros)


def planned_micros(inputs: Mapping[OperatorId, InputRange]) -> int:
    """When an epoch was planned, in microseconds."""
    return max(micros(each.planned_at) for each in inputs.values() if each.planned_at is not None)


def reads_planning_time(operator: OperatorSpec) -> bool:
    """Whether an expression of the operator names the planning time."""
    return f"`{PLANNED_AT}`" in operator.model_dump_json()


def with_planning_time(rows: DataFrame, time: int, column: str = PLANNED_AT) -> DataFrame:
    """Rows with the planning time, given in microseconds, as a column.

    A plain literal would be new code for Spark to compile in every epoch. An array is passed to the
    generated code as an object, and Spark does not fold what a lambda makes of it.
    """
    value = f"transform(array(timestamp_micros({time}L)), at -> at)[0]"
    return rows.withColumn(column, F.expr(value))
