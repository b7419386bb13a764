"""Expressions that are selected in every epoch, parsed once.

Each expression is a call into the JVM, and Spark parses its text: for few rows that takes longer than
to compute it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame


class Projection:
    """`selectExpr` with fixed expressions."""

    def __init__(self, *expressions: str) -> None:
        self._columns = [F.expr(each) for each in expressions]
        self._seq: object = None

    def of(self, rows: DataFrame) -> DataFrame:
        """Select the expressions from rows."""
        spark = rows.sparkSession
        if self._seq is None:
            self._seq = _to_seq(spark.sparkContext, [each._jc for each in self._columns])
        return ClassicDataFrame(rows._jdf.select(self._seq), spark)
