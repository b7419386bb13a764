"""Records of text, as a connector gives them to the reader of a format."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.contract import POSITION_TYPE
from resurgence.state.records import RecordPosition

FILE = "in.json"


def text_records(spark: SparkSession, texts: Iterable[tuple[int, str | None]]) -> DataFrame:
    """Texts with their lines."""
    rows = [((FILE, line), text) for line, text in texts]
    return spark.createDataFrame(rows, f"position {POSITION_TYPE}, text STRING")


def line_position(line: int) -> RecordPosition:
    return RecordPosition(partition=FILE, offset=line)
