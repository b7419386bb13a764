"""`mapInArrow` in few calls into the JVM.

PySpark looks up every column and parses the schema of the result in each call. Here both are
prepared once, and an epoch passes its function alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import _wrap_function
from pyspark.util import PythonEvalType

from resurgence.spark_tasks import ArrowFunction

_FUNCTION = "org.apache.spark.sql.execution.python.UserDefinedPythonFunction"


class ArrowMap:
    """A step through Python, the columns of which are the same in every epoch."""

    def __init__(self, columns: Sequence[str], result: StructType) -> None:
        """`columns` are all columns of the rows, in their order."""
        self.columns = tuple(columns)
        self._result = result
        self._prepared: tuple[Any, Any, Any] | None = None

    def of(self, rows: DataFrame, task: ArrowFunction) -> DataFrame:
        """Return what a function makes of the rows."""
        spark = rows.sparkSession
        context = spark.sparkContext
        if self._prepared is None:
            names = (each.replace("`", "``") for each in self.columns)
            self._prepared = (
                getattr(context._jvm, _FUNCTION),
                spark._jsparkSession.parseDataType(self._result.json()),
                _to_seq(context, [F.col(f"`{each}`")._jc for each in names]),
            )
        function, result, columns = self._prepared
        wrapped = _wrap_function(context, task, self._result)
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        call = function("task", wrapped, result, kind, True, [], []).apply(columns)
        return ClassicDataFrame(rows._jdf.mapInArrow(call, False, None), spark)
