"""What generators have in common: rows that are computed from their numbers, not read.

A generated row has no raw record, so its record is the row as a JSON object. A generator adds how
it plans ranges, and the rows of a range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.contract import Source, left_out, raw_records
from resurgence.connectors.formats.explanation import Explainer, parsed
from resurgence.connectors.formats.json.lines import JSON, JsonLineReader
from resurgence.connectors.formats.json.writer import object_sql
from resurgence.connectors.formats.options import BadData
from resurgence.errors import BadRecord
from resurgence.graph.values import Column
from resurgence.spark_plans.projection import Projection
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import InputRange, RecordPosition

NUMBER = "__number"
"""The column with the number of a row, which is the offset of its record."""

FEW = 10_000


def numbers(spark: SparkSession, start: int, end: int, parallelism: int) -> DataFrame:
    """Return the numbers from `start` to before `end`, as `id`.

    Spark compiles the bounds of a range into its code. To compile takes longer than to compute few
    rows, so for these the code is always the same.
    """
    if end - start > FEW:
        return spark.range(start, end, 1, parallelism)
    first, count = varying_literal(f"{start}L"), varying_literal(f"{end - start}L")
    return spark.range(0, FEW, 1, 1).where(f"id < {count}").selectExpr(f"{first} + id AS id")


class Generator(Source, ABC):
    """The part of a source's contract that is the same for all generators."""

    name: str
    """The name of the connector."""
    position_sql = "concat(position.partition, '@', position.offset)"

    def __init__(self, columns: Sequence[Column], bad_data: BadData) -> None:
        self.bad_data = bad_data
        self._columns = tuple(columns)
        self._declared = Projection(*(f"`{each.name}`" for each in columns))
        self._reader = JsonLineReader(self._columns)

    @abstractmethod
    def numbered(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        """Return the rows of a range: the declared columns, and NUMBER."""

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        rows = self.numbered(spark, input_range, parallelism)
        if input_range.excluded:
            rows = left_out(rows.withColumn("position", self._position), input_range.excluded)
        return self._declared.of(rows)

    def records(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        rows = self.numbered(spark, input_range, parallelism)
        line = object_sql([*rows.drop(NUMBER).schema])
        records = raw_records(rows.select(self._position.alias("position"), _bytes(line)))
        return left_out(records, input_range.excluded)

    def parse(self, records: DataFrame) -> DataFrame:
        return parsed(self._reader, JSON, records, {})

    def explainer(self) -> Callable[[bytes | None], str]:
        return Explainer(self._reader)

    def bad_record(self, input_range: InputRange, position: RecordPosition) -> BadRecord:
        place = str(position)
        return BadRecord(
            f"{place}: the corrected record cannot be parsed",
            hint="Write the record as a JSON object with the columns of the table.",
            position=place,
        )

    @property
    def _position(self) -> SparkColumn:
        offset = F.col(NUMBER).cast("bigint").alias("offset")
        return F.struct(F.lit(self.name).alias("partition"), offset)


def _bytes(sql: str) -> SparkColumn:
    return F.expr(f"CAST({sql} AS BINARY) AS raw")
