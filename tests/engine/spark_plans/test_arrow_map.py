"""A step through Python that is prepared once returns what `mapInArrow` returns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from resurgence.spark_plans.arrow_map import ArrowMap


def test_a_step_takes_another_function_in_every_epoch(spark: SparkSession) -> None:
    rows = spark.range(5).selectExpr("id", "id * 10 AS `a``b.c`")
    result = StructType.fromDDL("total BIGINT")
    assert isinstance(result, StructType)
    step = ArrowMap(rows.columns, result)

    def adding(bonus: int) -> list[int]:
        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                assert batch.schema.names == ["id", "a`b.c"]
                sums = [sum(each.values()) + bonus for each in batch.to_pylist()]
                yield pa.RecordBatch.from_pydict({"total": sums})

        return sorted(each.total for each in step.of(rows, task).collect())

    assert adding(0) == [0, 11, 22, 33, 44]
    assert adding(1) == [1, 12, 23, 34, 45]
