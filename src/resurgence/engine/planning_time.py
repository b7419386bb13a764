"""The planning time of an epoch as a column of its rows: what `now()` means.

An epoch records when it was planned together with its input, so a replay computes the same values.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from resurgence.graph.model import PLANNED_AT, Operator


def reads_planning_time(operator: Operator) -> bool:
    """Whether an expression of the operator names the planning time."""
    return f"`{PLANNED_AT}`" in operator.model_dump_json()


def with_planning_time(rows: DataFrame, time: int) -> DataFrame:
    """Rows with the planning time, given in microseconds, as one more column.

    A plain literal would be new code for Spark to compile in every epoch. An array is passed to the
    generated code as an object, and Spark does not fold what a lambda makes of it.
    """
    value = f"transform(array(timestamp_micros({time}L)), at -> at)[0]"
    return rows.selectExpr("*", f"{value} AS `{PLANNED_AT}`")
