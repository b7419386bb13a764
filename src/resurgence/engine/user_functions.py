"""Registers the user's functions with Spark, vectorised through Arrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from resurgence.udf import FunctionKind, UserFunction


def register_functions(spark: SparkSession, functions: Mapping[str, UserFunction]) -> None:
    """Make them callable in SQL under their names. An aggregate is called with the list of a
    group's values.
    """
    for function in functions.values():
        module = sys.modules[function.call.__module__]
        # The file is not importable where the tasks run: its code travels with the task.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        call = function.call if function.kind is FunctionKind.AGGREGATE else _null_safe(function)
        spark.udf.register(function.name, F.udf(call, returnType=function.result, useArrow=True))


def _null_safe(function: UserFunction) -> Callable[..., Any]:
    call, takes_null = function.call, function.takes_null

    def called(*values: Any) -> Any:
        if any(
            value is None and not takes for value, takes in zip(values, takes_null, strict=True)
        ):
            return None
        return call(*values)

    return called
