"""The third contract: what a lookup table gives. And what all of them share: rows as they are
stored become rows as they are declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from resurgence.errors import SourceError, UserError, did_you_mean
from resurgence.graph.values import Column


class LookupTable(Protocol):
    """A table at rest."""

    def check(self) -> None:
        """Raise a UserError now if this can never be read."""
        ...

    def read(self, spark: SparkSession) -> DataFrame:
        """All its rows as they are now: the declared columns, in the declared types. Rows are read
        in tasks, when Spark asks for them.
        """
        ...


def place_of(table: str) -> str:
    """Where a lookup table's errors are."""
    return f"lookup table {table}"


def unusable(table: str, message: str, hint: str) -> UserError:
    """The table is not what its declaration says."""
    return UserError(f"{place_of(table)}: {message}", hint=hint, position=place_of(table))


def unreadable(table: str, message: str, hint: str) -> SourceError:
    """The table cannot be read just now."""
    return SourceError(f"{place_of(table)}: {message}", hint=hint, position=place_of(table))


def spark_schema(columns: Sequence[Column]) -> StructType:
    """The declared columns for Spark, which must be running."""
    schema = StructType.fromDDL(", ".join(f"`{each.name}` {each.type}" for each in columns))
    assert isinstance(schema, StructType)
    return schema


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The declared columns as Spark wants them from a task."""
    return to_arrow_schema(spark_schema(columns), timezone="UTC")


def stored_names(table: str, place: str, stored: Sequence[str], wanted: pa.Schema) -> list[str]:
    """The stored names of the wanted columns, whatever their case; a UserError if one is missing."""
    known = {each.lower(): each for each in stored}
    for name in wanted.names:
        if name.lower() not in known:
            hint = did_you_mean(name, stored) or "declare the columns that it has"
            raise unusable(table, f"{place} has no column '{name}'", hint)
    return [known[name.lower()] for name in wanted.names]


def as_declared(
    table: str, place: str, columns: Mapping[str, pa.Array], wanted: pa.Schema
) -> pa.RecordBatch:
    """Columns, by their declared names, in the declared types; a UserError if a value does not
    fit.
    """
    arrays = [_cast(table, place, field.name, columns[field.name], field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _cast(table: str, place: str, name: str, values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    try:
        # Spark's timestamps have microseconds; what is finer is cut off.
        return pc.cast(values, options=pc.CastOptions(wanted, allow_time_truncate=True))
    except pa.ArrowException as error:
        reason = str(error).split("\n", 1)[0]
        raise unusable(
            table,
            f"column '{name}' of {place} is {values.type} and cannot be read as {wanted}: {reason}",
            "declare the column with the type that it has, and cast it in the query",
        ) from error
