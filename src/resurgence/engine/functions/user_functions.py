"""Registers the user's functions with Spark, vectorised through Arrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from resurgence.engine.functions.async_call import answers
from resurgence.engine.functions.user_call import for_spark
from resurgence.udf import UserFunction, registered_name

_FAULT_HANDLER = "spark.sql.execution.pyspark.udf.faulthandler.enabled"


def register_functions(spark: SparkSession, functions: Mapping[str, UserFunction]) -> None:
    """Register the functions for SQL under their names. An aggregate is called with the list of a
    group's values.
    """
    if functions:
        # Functions may call native code: report where a crash happened.
        enabled = spark.sparkContext.getConf().get(_FAULT_HANDLER, "true")
        spark.conf.set(_FAULT_HANDLER, enabled or "true")
    for function in functions.values():
        module = sys.modules[function.call.__module__]
        # The file is not importable where the tasks run, so its code is serialised with the task.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        if function.limits is None:
            call = F.udf(for_spark(function), returnType=function.result, useArrow=True)
        else:
            kind = DataType.fromDDL(function.result)
            # The stubs require what Spark itself takes from the annotations.
            call = arrow_udf(_over_batches(function, kind), kind)  # type: ignore[call-overload]
        spark.udf.register(registered_name(function.name), call)


def _over_batches(function: UserFunction, kind: DataType) -> Callable[..., pa.Array]:
    """Return an async function over columns. Values are converted as for any other function."""
    schema = StructType([StructField("value", kind)])

    def called(*columns: pa.Array) -> pa.Array:
        table = pa.table(dict(zip(map(str, range(len(columns))), columns, strict=True)))
        rows = ArrowTableToRowsConversion.convert(table, from_arrow_schema(table.schema))
        results = [(each,) for each in answers(function, [tuple(row) for row in rows])]
        made = LocalDataToArrowConversion.convert(results, schema, use_large_var_types=False)
        return made.column(0).combine_chunks()

    return called
