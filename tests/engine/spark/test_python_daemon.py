import gc
import os
import sys
from collections.abc import Iterator

import numpy
import pyarrow
import pyarrow.compute
from pyspark.sql import SparkSession


def _imported(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for _ in batches:
        found = ["pandas" in sys.modules and gc.get_freeze_count() > 0]
        yield pyarrow.RecordBatch.from_pydict({"prepared": found})


def _computed(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for _ in batches:
        # Both libraries compute in threads, which the daemon's fork has not copied.
        square = numpy.ones((400, 400)) @ numpy.ones((400, 400))
        table = pyarrow.table({"key": [1, 2] * 50_000, "n": [1] * 100_000})
        groups = table.group_by("key").aggregate([("n", "sum")])
        total = pyarrow.compute.sum(groups["n_sum"]).as_py() + int(square[0, 0])
        yield pyarrow.RecordBatch.from_pydict({"pid": [os.getpid()], "total": [total]})


def test_python_workers_start_with_their_modules_imported_and_frozen(spark: SparkSession) -> None:
    rows = spark.range(0, 4, 1, 4).mapInArrow(_imported, "prepared boolean").collect()
    assert [row.prepared for row in rows] == [True] * 4


def test_libraries_with_threads_work_in_a_forked_worker(spark: SparkSession) -> None:
    rows = spark.range(0, 4, 1, 4).mapInArrow(_computed, "pid long, total long").collect()
    assert [row.total for row in rows] == [100_400] * 4
