"""Lookup tables in Iceberg's format: the driver plans the files of the current snapshot, tasks read
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.options import IcebergLookupOptions
from resurgence.connectors.iceberg.reading.file_reader import read_pieces
from resurgence.connectors.iceberg.reading.table_files import accesses, declared_columns, piece_of
from resurgence.connectors.lookups.contract import spark_schema, unusable
from resurgence.errors import ResurgenceError, SourceError, UserError
from resurgence.graph.values import Column


class IcebergLookup:
    """An Iceberg table, at its current snapshot."""

    def __init__(
        self, table: str, options: IcebergLookupOptions, columns: Sequence[Column]
    ) -> None:
        self._table = table
        self._catalog = IcebergCatalog(options.place(), SourceError)
        self._columns = tuple(columns)

    def check(self) -> None:
        self._catalog.require_package()
        try:
            self._catalog.load()
        except UserError as error:
            raise unusable(self._table, error.message, error.hint) from error

    def read(self, spark: SparkSession) -> DataFrame:
        try:
            return self._rows(spark)
        except UserError as error:
            raise unusable(self._table, error.message, error.hint) from error

    def _rows(self, spark: SparkSession) -> DataFrame:
        table = self._catalog.load()
        schema = spark_schema(self._columns)
        columns = declared_columns(table, schema, _replaced)
        with self._catalog.translated("plan its files"):
            try:
                tasks = [*table.scan().plan_files()]
            except ValueError as error:
                # pyiceberg does not read equality deletes.
                raise UserError(
                    f"Iceberg table {self._catalog.place} cannot be read: {error}",
                    hint="Rewrite the table's data files, so that deletes are applied to them.",
                ) from error
            pieces = [piece_of(table, each.file, each.delete_files) for each in tasks]
        if not pieces:
            return spark.createDataFrame([], schema)
        parallelism = spark.sparkContext.defaultParallelism
        found = accesses(table, pieces)
        return read_pieces(spark, pieces, found, columns, schema, parallelism)


def _replaced(place: str) -> ResurgenceError:
    """Return the error for a file that does not exist any more: the next attempt reads others."""
    return SourceError(
        f"{place} does not exist any more",
        hint="Check whether snapshots of the table expire while they are read. The job will retry.",
    )
