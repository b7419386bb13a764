"""The columns of a Delta table, and what a sink may write to it. Pure.

Delta stores its schema as Spark does, so the columns of both are compared as Spark's types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from resurgence.errors import UserError

_PARTITION_TYPES = frozenset(
    {"string", "boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "decimal"}
    | {"timestamp_ntz", "float", "double"}
)
_NO_TYPES = frozenset({"variant", "interval", "void", "time", "geometry", "geography"})
"""Types that tables here cannot have."""
_WRITER_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
)
"""The writer features that a table may have. Those that would have to be enforced must be unused."""
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""The reader features that a table may require."""
_COLUMN_RULES = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "delta.identity.step": "an identity column",
    "delta.invariants": "a column with an invariant",
}


@dataclass(frozen=True)
class TableShape:
    """A table as its log describes it."""

    place: str
    """Its URL, for messages."""
    schema: StructType
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    writer_features: tuple[str, ...] = ()


def table_schema(text: str) -> StructType:
    """Return a schema from its JSON text in a log."""
    return StructType.fromJson(json.loads(text))


def all_nullable(columns: StructType) -> StructType:
    """Return columns for a new table: streams promise no values."""
    return StructType([StructField(each.name, each.dataType, True) for each in columns])


def _plain_types(kind: DataType) -> Iterator[str]:
    """Yield the names of the types in a type, without parameters."""
    if isinstance(kind, StructType):
        for each in kind:
            yield from _plain_types(each.dataType)
    elif isinstance(kind, ArrayType):
        yield from _plain_types(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _plain_types(kind.keyType)
        yield from _plain_types(kind.valueType)
    else:
        yield re.split(r"[ (]", kind.simpleString(), maxsplit=1)[0]


def require_storable(table: str, columns: StructType, partitioned_by: Sequence[str]) -> None:
    """Raise UserError if Delta has no such columns."""
    for each in columns:
        kind = each.dataType.simpleString()
        if not _NO_TYPES.isdisjoint(_plain_types(each.dataType)):
            raise UserError(
                f"table '{table}': column '{each.name}' is {kind}, which a Delta table cannot store",
                hint="Cast it in the query.",
            )
    types = {each.name.lower(): each.dataType for each in columns}
    for name in partitioned_by:
        if types[name.lower()].simpleString().split("(")[0] not in _PARTITION_TYPES:
            raise UserError(
                f"table '{table}': a Delta table cannot be partitioned by '{name}', which is"
                f" {types[name.lower()].simpleString()}",
                hint="Partition by a text, a number, a date or a timestamp.",
            )
    if len(partitioned_by) == len(types):
        raise UserError(
            f"table '{table}': a Delta table must have a column that it is not partitioned by",
            hint="Remove a column from 'partitioning.fields'.",
        )


def require_writable(shape: TableShape, *, removes: bool) -> None:
    """Raise UserError for tables whose rules this sink would not keep. `removes`: it also replaces
    files.
    """
    mode = shape.configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise _refused(shape, f"has column mapping by {mode}: its files have other column names")
    if unknown := set(shape.writer_features) - _WRITER_FEATURES:
        raise _refused(shape, f"requires unsupported features: {', '.join(sorted(unknown))}")
    rules = [each for each in shape.configuration if each.startswith("delta.constraints.")]
    if rules:
        raise _refused(shape, f"has the constraint {rules[0].removeprefix('delta.constraints.')}")
    for each in shape.schema:
        for rule, words in _COLUMN_RULES.items():
            if rule in (each.metadata or {}):
                raise _refused(shape, f"has {words}, '{each.name}'")
    if removes and shape.configuration.get("delta.appendOnly", "false").lower() == "true":
        raise UserError(
            f"{shape.place} is append-only (delta.appendOnly), but a changelog updates and deletes"
            " rows",
            hint="Write to another table, or unset the property.",
        )


def _refused(shape: TableShape, reason: str) -> UserError:
    return UserError(
        f"{shape.place} cannot be written: it {reason}",
        hint="Write to a table without that, and copy its rows from there.",
    )


def missing_columns(table: str, shape: TableShape, columns: StructType) -> list[StructField]:
    """Return the columns that the table does not have yet. Raise UserError if others differ."""
    known = {each.name.lower(): each for each in shape.schema}
    added = []
    for each in columns:
        stored = known.pop(each.name.lower(), None)
        if stored is None:
            added.append(StructField(each.name, each.dataType, True))
        elif not _same(stored.dataType, each.dataType):
            raise UserError(
                f"table '{table}': column '{each.name}' is {each.dataType.simpleString()}, but"
                f" {shape.place} has it as {stored.dataType.simpleString()}",
                hint="Cast it in the query. Only added columns change a Delta table.",
            )
    for left in known.values():
        if not left.nullable:
            raise UserError(
                f"table '{table}' has no column '{left.name}', which {shape.place} requires",
                hint="Add it to the table and to the query.",
            )
        if left.name in shape.partition_columns:
            raise UserError(
                f"table '{table}' has no column '{left.name}', by which {shape.place} is"
                " partitioned",
                hint="Add it to the table and to the query.",
            )
    return added


def require_partitioning(table: str, shape: TableShape, wanted: Sequence[str]) -> None:
    """Raise UserError if the table is partitioned by other columns than an option names."""
    if wanted and [*map(str.lower, wanted)] != [*map(str.lower, shape.partition_columns)]:
        is_by = ", ".join(shape.partition_columns) or "nothing"
        raise UserError(
            f"table '{table}' is to be partitioned by {', '.join(wanted)}, but {shape.place} is"
            f" partitioned by {is_by}",
            hint="Remove 'partitioning.fields': an existing table keeps its partitioning.",
        )


def _same(stored: DataType, written: DataType) -> bool:
    """Compare types, whether or not their values may be null."""
    return stored.simpleString().lower() == written.simpleString().lower()


def unreadable_reason(
    configuration: Mapping[str, str], reader_features: Collection[str]
) -> str | None:
    """Return why a table cannot be read from its files; None if it can."""
    mode = configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        return f"has column mapping by {mode}: its files have other column names"
    if unknown := {*reader_features} - READER_FEATURES:
        return f"requires unsupported reader features: {', '.join(sorted(unknown))}"
    return None


def partition_scalar(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value from its text in the log."""
    if text is None or text == "":
        return pa.scalar(None, kind)
    if pa.types.is_binary(kind):
        return pa.scalar(text.encode(), kind)
    value = pa.scalar(text)
    if pa.types.is_timestamp(kind) and kind.tz is not None and not text.endswith("Z"):
        # Texts without a zone are in UTC.
        return value.cast(pa.timestamp("us")).cast(kind)
    return value.cast(kind)
