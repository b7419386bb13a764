"""Resurgence: streaming SQL on Apache Spark that comes back after any failure, exactly once."""

from resurgence.udf import udaf, udf

__all__ = ["udaf", "udf"]
__version__ = "0.1.0"
