"""Lookup tables in Delta Lake's format: the log lists the files of the table, tasks read them.

The log is read by the package `deltalake`. What the files alone do not contain is taken from the
log (the values of partition columns, which rows of a file are deleted) or refused (columns under
other names).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.delta.columns import unreadable_reason
from resurgence.connectors.delta.table import storage_options
from resurgence.connectors.lookups.contract import (
    arrow_schema,
    spark_schema,
    stored_names,
    unreadable,
    unusable,
)
from resurgence.connectors.lookups.files import FilePart, read_parts, require_folder
from resurgence.errors import ConfigError
from resurgence.graph.table_options import TableOptions, option
from resurgence.graph.values import Column
from resurgence.storage.object_store import storage_url

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PARTITION = "partition."
_PLAIN_TABLE = "Rewrite it as a table without that feature."


class DeltaLookupOptions(TableOptions):
    """The options of a `delta` lookup table."""

    path: str = option("a folder or storage URL")


class DeltaLookup:
    """A Delta table, at its newest version."""

    def __init__(self, table: str, options: DeltaLookupOptions, columns: Sequence[Column]) -> None:
        self._table = table
        self._url = storage_url(options.path)
        self._columns = tuple(columns)

    def check(self) -> None:
        if importlib.util.find_spec("deltalake") is None:
            raise ConfigError(
                f"lookup table {self._table} requires the package deltalake",
                hint="Install it with `pip install 'resurgence[delta]'`.",
            )
        require_folder(self._table, self._url)

    def read(self, spark: SparkSession) -> DataFrame:
        self.check()
        delta = self._opened()
        schema = pa.schema(delta.schema().to_arrow())
        stored_names(self._table, self._url, schema.names, arrow_schema(self._columns))
        actions = pa.table(delta.get_add_actions(flatten=True))
        # Files that are older than a column have nulls in it.
        absent = {field.name.lower(): pa.scalar(None, field.type) for field in schema}
        paths = actions.column("path").to_pylist()
        selected = self._selected(delta, paths)
        parts = tuple(
            FilePart(unquote(path), absent | _partition_values(actions, number), selected.get(path))
            for number, path in enumerate(paths)
        )
        if any("://" in each.path or each.path.startswith("/") for each in parts):
            raise unusable(
                self._table,
                f"{self._url} has files outside of its folder, like a shallow clone",
                "Make a deep clone of it.",
            )
        if not parts:
            return spark.createDataFrame([], spark_schema(self._columns))
        return read_parts(spark, self._table, self._url, parts, self._columns)

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            delta = DeltaTable(self._url, storage_options=storage_options(self._url))
            self._require_plain(delta)
            return delta
        except TableNotFoundError as error:
            raise unusable(
                self._table, f"there is no Delta table at {self._url}", "Check the option 'path'."
            ) from error
        except (DeltaError, OSError) as error:
            reason = str(error).split("\n", 1)[0]
            if "nsupported" in reason:
                raise unusable(
                    self._table, f"{self._url} cannot be read: {reason}", _PLAIN_TABLE
                ) from error
            raise unreadable(
                self._table,
                f"{self._url} cannot be read: {reason}",
                "Check that the table is accessible. The job will retry.",
            ) from error

    def _require_plain(self, delta: DeltaTable) -> None:
        """Raise UserError for tables that cannot be read from their files."""
        features = delta.protocol().reader_features or ()
        reason = unreadable_reason(delta.metadata().configuration, features)
        if reason is not None:
            raise unusable(self._table, f"{self._url} {reason}", _PLAIN_TABLE)

    def _selected(self, delta: DeltaTable, paths: Sequence[str]) -> dict[str, pa.BooleanArray]:
        """Return, by file with deleted rows, which of its rows are not deleted."""
        vectors = pa.table(delta.deletion_vectors())
        found: dict[str, pa.BooleanArray] = {}
        for place, vector in zip(vectors["filepath"], vectors["selection_vector"], strict=True):
            for path in paths:
                if place.as_py().endswith(f"/{path}"):
                    found[path] = vector.values
        if len(found) != vectors.num_rows:
            raise unreadable(
                self._table,
                f"{self._url} has deletion vectors for files that are not part of it",
                "Check whether the table changed while it was read. The job will retry.",
            )
        return found


def _partition_values(actions: pa.Table, number: int) -> dict[str, pa.Scalar]:
    return {
        name.removeprefix(_PARTITION).lower(): actions.column(name)[number]
        for name in actions.column_names
        if name.startswith(_PARTITION)
    }
