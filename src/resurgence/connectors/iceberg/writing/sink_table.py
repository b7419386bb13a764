"""The table of a sink: created on first use, extended by columns, and checked before it is written.

Nothing is read or written here but the catalog and metadata files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.columns import missing_columns, require_storable
from resurgence.connectors.iceberg.partitioning import (
    PARTITIONING,
    PartitionTerm,
    require_same_partitioning,
)
from resurgence.connectors.lakehouse.data_files import SortField
from resurgence.connectors.lakehouse.options import require_columns
from resurgence.errors import UserError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_NEW_TABLE = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # A job commits often: without these, metadata would grow with each commit.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_MOST_ATTEMPTS = 10


class SinkTable:
    """A table that a sink writes."""

    def __init__(
        self,
        catalog: IcebergCatalog,
        name: str,
        partitioned_by: tuple[PartitionTerm, ...],
        sorted_by: tuple[SortField, ...],
    ) -> None:
        """`name` is that of the table in the pipeline."""
        self._catalog = catalog
        self._name = name
        self._partitioned_by = partitioned_by
        self._sorted_by = sorted_by

    def check(self) -> None:
        """Raise UserError if the table exists and cannot be written."""
        table = self._catalog.find()
        if table is not None:
            self._require_writable(table)

    def prepare(self, columns: StructType) -> Table:
        """Return the table, created or extended if necessary. Raise UserError if rows with these
        columns cannot be written.
        """
        rows = pa.schema([each.with_nullable(True) for each in _arrow(columns)])
        require_storable(self._name, rows)
        partitions = [each.column for each in self._partitioned_by]
        require_columns(PARTITIONING, partitions, columns.names)
        require_columns("sort.fields", [each.column for each in self._sorted_by], columns.names)
        table = self._catalog.find() or self._created(rows)
        self._require_writable(table)
        return self._extended(table, rows)

    def _created(self, rows: pa.Schema) -> Table:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
        from pyiceberg.table.sorting import NullOrder
        from pyiceberg.transforms import IdentityTransform

        catalog, place = self._catalog.catalog, self._catalog.place
        known = {each.lower(): each for each in rows.names}
        with self._catalog.translated("create it"):
            try:
                if not catalog.namespace_exists(place.identifier[:-1]):
                    catalog.create_namespace(place.identifier[:-1])
            except NamespaceAlreadyExistsError:
                pass
            try:
                creation = catalog.create_table_transaction(
                    place.identifier, rows, properties=_NEW_TABLE
                )
                with creation as transaction:
                    if self._partitioned_by:
                        with transaction.update_spec() as spec:
                            for term in self._partitioned_by:
                                column = known[term.column.lower()]
                                spec.add_field(column, term.transform, _field_name(column, term))
                    if self._sorted_by:
                        with transaction.update_sort_order() as order:
                            for each in self._sorted_by:
                                add = order.desc if each.is_descending else order.asc
                                nulls = (
                                    NullOrder.NULLS_LAST
                                    if each.is_descending
                                    else NullOrder.NULLS_FIRST
                                )
                                column = known[each.column.lower()]
                                add(column, IdentityTransform(), nulls)
            except TableAlreadyExistsError:
                # Another sink or job was faster.
                pass
            except ValueError as error:
                raise UserError(
                    f"table '{self._name}': Iceberg table {place} cannot be created: {error}",
                    hint=f"Check the columns, '{PARTITIONING}' and 'sort.fields'.",
                ) from error
        return self._catalog.load()

    def _extended(self, table: Table, rows: pa.Schema) -> Table:
        """Return the table with all columns of the rows. Another writer may add some of them at the
        same time.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        for _ in range(_MOST_ATTEMPTS):
            added = missing_columns(self._name, schema_to_pyarrow(table.schema()), rows)
            if not added:
                break
            with self._catalog.translated("add columns to it"):
                try:
                    with table.update_schema() as update:
                        update.union_by_name(pa.schema(added))
                except CommitFailedException:
                    pass
            table = self._catalog.load()
        return table

    def _require_writable(self, table: Table) -> None:
        version = table.metadata.format_version
        if version > 2:
            raise UserError(
                f"Iceberg table {self._catalog.place} has format version {version}, and sinks write"
                " up to version 2",
                hint="Write to a table of format version 2.",
            )
        stored = tuple(
            PartitionTerm(table.schema().find_field(each.source_id).name, str(each.transform))
            for each in table.spec().fields
            if str(each.transform) != "void"
        )
        require_same_partitioning(str(self._catalog.place), stored, self._partitioned_by)


def _arrow(columns: StructType) -> pa.Schema:
    return to_arrow_schema(columns, timezone="UTC")


def _field_name(column: str, term: PartitionTerm) -> str:
    """Return the name of a partition field, as other writers of Iceberg choose it."""
    kind, _, _ = term.transform.partition("[")
    return column if kind == "identity" else f"{column}_{kind.replace('truncate', 'trunc')}"
