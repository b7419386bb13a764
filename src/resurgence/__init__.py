"""Resurgence: streaming SQL on Apache Spark that recovers from any failure, exactly once."""

from resurgence.udf import udaf, udf

__all__ = ["udaf", "udf"]
__version__ = "0.1.0"
