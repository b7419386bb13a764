"""Streaming SQL: text to graph, without Spark."""

from resurgence.sql.functions import FunctionKind
from resurgence.sql.plan import compile_pipeline

__all__ = ["FunctionKind", "compile_pipeline"]
