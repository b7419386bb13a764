"""Reads a source's range, and learns on the way what the epoch must know of it.

The watermark and the bad records are observed by the job that reads the rows, not by a second one.
What is observed is computed as a column before: Spark compiles columns, and interprets what it
observes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.contract import BAD_POSITION, Source
from resurgence.engine.pipeline import event_time
from resurgence.graph.model import SourceOperator, WatermarkSpec
from resurgence.state.records import InputRange

_WATERMARK = "__watermark"
_GOOD = f"`{BAD_POSITION}` IS NULL"


@dataclass(frozen=True)
class Seen:
    """What a range had in it."""

    watermark: int | None = None
    bad_rows: int = 0
    first_bad: int | None = None


@dataclass(frozen=True)
class Reading:
    """A range being read. What was seen is known when a Spark job has run over `rows`."""

    rows: DataFrame
    """The declared columns and event time, good rows only; columns of ours may be among them."""
    observation: Observation | None

    def seen(self) -> Seen:
        """Wait for the job, and tell."""
        if self.observation is None:
            return Seen()
        found = self.observation.get
        return Seen(found.get("watermark"), found.get("bad", 0), found.get("first_bad"))


class SourceReader:
    """One source of a running job."""

    def __init__(self, operator: SourceOperator, source: Source) -> None:
        self.source = source
        self._watermark = operator.watermark

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> Reading:
        rows = self.source.read(spark, input_range, parallelism)
        may_be_bad = BAD_POSITION in rows.columns
        observed = []
        if self._watermark is not None:
            mark = _micros(self._watermark)
            mark = f"IF({_GOOD}, {mark}, NULL)" if may_be_bad else mark
            rows = rows.selectExpr("*", event_time(self._watermark), f"{mark} AS `{_WATERMARK}`")
            observed.append(F.expr(f"max(`{_WATERMARK}`) AS watermark"))
        if may_be_bad:
            observed.append(F.expr(f"count(`{BAD_POSITION}`) AS bad"))
            observed.append(F.expr(f"min(`{BAD_POSITION}`) AS first_bad"))
        if not observed:
            return Reading(rows, None)
        observation = Observation()
        rows = rows.observe(observation, *observed)
        return Reading(rows.where(_GOOD) if may_be_bad else rows, observation)


def _micros(watermark: WatermarkSpec) -> str:
    """What a row says of the watermark, in microseconds."""
    if watermark.delay_micros is not None:
        return f"unix_micros(`{watermark.event_time}`) - {watermark.delay_micros}L"
    return f"unix_micros(CAST({watermark.sql} AS TIMESTAMP))"
