"""Empty DataFrames, which compiling a pipeline needs many of."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def empty_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return an empty DataFrame. `SparkSession.createDataFrame` would make an RDD of Python objects
    for it, which takes longer.
    """
    java = spark._jsparkSession
    no_rows = spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    return DataFrame(java.createDataFrame(no_rows, java.parseDataType(schema.json())), spark)
