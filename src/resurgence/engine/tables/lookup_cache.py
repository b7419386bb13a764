"""A lookup table, read as a whole, cached by Spark, and used by every epoch until its TTL ends.

It is not part of a checkpoint: a new generation reads it again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.lookups.contract import LookupTable, spark_schema
from resurgence.engine.spark.empty_rows import empty_rows
from resurgence.graph.specs.lookup_join import LookupSpec
from resurgence.ids import Epoch


class LookupCache:
    """The rows of a lookup table as of its last read."""

    def __init__(self, spec: LookupSpec, table: LookupTable, spark: SparkSession) -> None:
        self._ttl = timedelta(microseconds=spec.ttl_micros)
        self._table = table
        self._spark = spark
        self._none = empty_rows(spark, spark_schema(spec.columns))
        self._rows: DataFrame | None = None
        self._read_at: tuple[Epoch, datetime] | None = None

    @property
    def rows(self) -> DataFrame:
        """The rows of the last read; empty before the first."""
        return self._none if self._rows is None else self._rows

    def is_due(self, epoch: Epoch, now: datetime) -> bool:
        """Return whether an epoch that begins now must read the table."""
        if self._read_at is None:
            return True
        read_in, read_at = self._read_at
        return epoch != read_in and now - read_at >= self._ttl

    def read(self, epoch: Epoch, now: datetime) -> None:
        """Read all rows, for this epoch and those that follow."""
        if self._rows is not None:
            # First, because Spark would answer the same query from its cache.
            self._rows.unpersist()
            self._rows = self._read_at = None
        rows = self._table.read(self._spark).persist()
        # Reads all rows, so that Spark knows the size before it plans a join.
        rows.count()
        self._rows, self._read_at = rows, (epoch, now)
