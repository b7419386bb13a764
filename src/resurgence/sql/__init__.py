"""The streaming SQL compiler: SQL text to dataflow graph, without Spark."""

from resurgence.sql.planner.plan import compile_pipeline

__all__ = ["compile_pipeline"]
