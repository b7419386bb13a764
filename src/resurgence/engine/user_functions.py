"""Registers the user's functions with Spark, vectorised through Arrow."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from resurgence.engine.user_call import guarded
from resurgence.udf import UserFunction, registered_name

_FAULT_HANDLER = "spark.sql.execution.pyspark.udf.faulthandler.enabled"


def register_functions(spark: SparkSession, functions: Mapping[str, UserFunction]) -> None:
    """Make them callable in SQL under their names. An aggregate is called with the list of a
    group's values.
    """
    if functions:
        # Native code may be called: a crash in it is to say where.
        wanted = spark.sparkContext.getConf().get(_FAULT_HANDLER, "true")
        spark.conf.set(_FAULT_HANDLER, wanted or "true")
    for function in functions.values():
        module = sys.modules[function.call.__module__]
        # The file is not importable where the tasks run: its code travels with the task.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        call = F.udf(guarded(function), returnType=function.result, useArrow=True)
        spark.udf.register(registered_name(function.name), call)
