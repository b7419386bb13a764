"""Streaming SQL: text to graph, without Spark."""

from resurgence.sql.planner.plan import compile_pipeline

__all__ = ["compile_pipeline"]
