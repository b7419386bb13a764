"""The dead letters of a source as rows: records that could not be parsed, and records on which an
epoch failed.

These are Spark jobs of their own, over the epoch's input. An epoch without dead letters does not
run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.contract import POSITION_TYPE, RAW_RECORDS, is_at
from resurgence.ids import Epoch, OperatorId
from resurgence.spark_tasks import ArrowFunction
from resurgence.state.records import RecordPosition

_LETTER = f"{RAW_RECORDS}, operator STRING, error STRING"
_UNKNOWN = "an earlier attempt of the epoch failed on this record"


@dataclass(frozen=True)
class PoisonRow:
    """Why an epoch failed on a record."""

    operator: OperatorId
    error: str


def bad_letters(
    records: DataFrame,
    bad: DataFrame,
    source: OperatorId,
    explain: Callable[[bytes | None], str],
    ahead: str,
) -> DataFrame:
    """Return the dead letters of bad records. `bad` has their positions and whether their event
    time is too far ahead, for which `ahead` is the error.
    """
    joined = records.join(F.broadcast(bad.distinct()), "position")
    return joined.mapInArrow(_explained(source, explain, ahead), _LETTER)


def _explained(
    source: OperatorId, explain: Callable[[bytes | None], str], ahead: str
) -> ArrowFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = zip(batch.column("raw"), batch.column("is_ahead"), strict=True)
            # A loop over rows, of which there are at most `pipeline.max_dead_letters`.
            errors = [
                ahead if is_ahead.as_py() else explain(raw.as_py()) for raw, is_ahead in values
            ]
            letters = pa.Table.from_batches([batch]).drop_columns(["is_ahead"])
            operator = pa.array([source] * batch.num_rows, pa.string())
            letters = letters.append_column("operator", operator)
            yield from letters.append_column("error", pa.array(errors, pa.string())).to_batches()

    return run


def poison_letters(
    spark: SparkSession, records: DataFrame, rows: Mapping[RecordPosition, PoisonRow | None]
) -> DataFrame:
    """Return the dead letters of records on which an epoch failed. The reason is None if an earlier
    attempt of the epoch has found them.
    """
    reasons = spark.createDataFrame(
        [
            (
                (position.partition, position.offset),
                each.operator if each else None,
                each.error if each else _UNKNOWN,
            )
            for position, each in rows.items()
        ],
        f"position {POSITION_TYPE}, operator STRING, error STRING",
    )
    return records.where(is_at(rows.keys())).join(F.broadcast(reasons), "position")


def letter_rows(
    letters: DataFrame, source: OperatorId, position_sql: str, epoch: Epoch, time: int
) -> DataFrame:
    """Return dead letters with the columns of their table."""
    return letters.selectExpr(
        f"coalesce(operator, '{source}') AS operator",
        f"'{source}' AS source",
        f"{epoch}L AS epoch",
        f"{position_sql} AS position",
        "error",
        "raw",
        f"timestamp_micros({time}L) AS at",
        "position.partition AS partition",
        "position.offset AS offset",
        "key",
        "headers",
        "timestamp AS record_timestamp",
    )
