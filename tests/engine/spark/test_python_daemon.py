from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow
from pyspark.sql import SparkSession


def frozen_objects(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})


def test_python_workers_freeze_their_modules_after_the_first_task(spark: SparkSession) -> None:
    """Otherwise Spark's collection after every task traverses them."""
    rows = spark.range(1, numPartitions=1).mapInArrow(frozen_objects, "frozen BIGINT")
    rows.collect()
    ((frozen,),) = rows.collect()
    assert frozen > 10_000
