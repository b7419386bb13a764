"""The contract of lookup tables, and the conversion of stored columns to declared ones."""

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
    """An external table that is read whole."""

    def check(self) -> None:
        """Raise UserError if this can never be read."""
        ...

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all its current rows: the declared columns, in the declared types. Tasks read the
        rows, lazily.
        """
        ...


def lookup_position(table: str) -> str:
    """Return the position of a lookup table's errors."""
    return f"lookup table {table}"


def unusable(table: str, message: str, hint: str) -> UserError:
    """Return the error for a table that does not match its declaration."""
    return UserError(
        f"{lookup_position(table)}: {message}", hint=hint, position=lookup_position(table)
    )


def unreadable(table: str, message: str, hint: str) -> SourceError:
    """Return the error for a table that currently cannot be read."""
    return SourceError(
        f"{lookup_position(table)}: {message}", hint=hint, position=lookup_position(table)
    )


def spark_schema(columns: Sequence[Column]) -> StructType:
    """Return the declared columns as a Spark schema. Spark must be running."""
    schema = StructType.fromDDL(", ".join(f"`{each.name}` {each.type}" for each in columns))
    assert isinstance(schema, StructType)
    return schema


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the declared columns as the Arrow schema that Spark expects from a task."""
    return to_arrow_schema(spark_schema(columns), timezone="UTC")


def stored_names(table: str, place: str, stored: Sequence[str], wanted: pa.Schema) -> list[str]:
    """Return the stored names of the wanted columns, ignoring case. Raise UserError if one is
    missing.
    """
    known = {each.lower(): each for each in stored}
    for name in wanted.names:
        if name.lower() not in known:
            hint = did_you_mean(name, stored) or "Declare the columns that it has."
            raise unusable(table, f"{place} has no column '{name}'", hint)
    return [known[name.lower()] for name in wanted.names]


def as_declared(
    table: str, place: str, columns: Mapping[str, pa.Array], wanted: pa.Schema
) -> pa.RecordBatch:
    """Cast columns, by their declared names, to the declared types. Raise UserError if a value does
    not fit.
    """
    arrays = [_cast(table, place, field.name, columns[field.name], field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _cast(table: str, place: str, name: str, values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    try:
        # Spark's timestamps have microseconds; finer digits are truncated.
        return pc.cast(values, options=pc.CastOptions(wanted, allow_time_truncate=True))
    except pa.ArrowException as error:
        reason = str(error).split("\n", 1)[0]
        raise unusable(
            table,
            f"column '{name}' of {place} is {values.type} and cannot be read as {wanted}: {reason}",
            "Declare the column with its stored type, and cast it in the query.",
        ) from error
