"""Expressions that are selected in every epoch, parsed once.

Each expression is a call into the JVM, and Spark parses its text: for few rows that takes longer than
to compute it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame


class Projection:
    """`selectExpr` with fixed expressions."""

    def __init__(self, *expressions: str) -> None:
        self._expressions = expressions
        self._columns: Any = None
        """As the JVM has them, once they were used."""

    def of(self, rows: DataFrame) -> DataFrame:
        """Select the expressions from rows."""
        spark = rows.sparkSession
        if self._columns is None:
            parsed = [F.expr(each)._jc for each in self._expressions]
            self._columns = _to_seq(spark.sparkContext, parsed)
        return ClassicDataFrame(rows._jdf.select(self._columns), spark)
