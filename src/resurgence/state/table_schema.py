"""The schema of a state table, which stands in its metadata as Spark's JSON, as Arrow types.

A type that is not known here is None: nothing is said about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pyarrow as pa

_SIMPLE = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def table_columns(schema_text: str) -> dict[str, pa.DataType | None]:
    """The columns of a table in their order; empty if the metadata says nothing."""
    if not schema_text:
        return {}
    fields = json.loads(schema_text)["fields"]
    return {str(each["name"]): _arrow_type(each["type"]) for each in fields}


def _arrow_type(spark: object) -> pa.DataType | None:
    if isinstance(spark, str):
        decimal = _DECIMAL.fullmatch(spark)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _SIMPLE.get(spark)
    if not isinstance(spark, Mapping):
        return None
    parts: list[pa.DataType | None]
    match spark.get("type"):
        case "array":
            element = _arrow_type(spark["elementType"])
            return None if element is None else pa.list_(element)
        case "map":
            key, value = _arrow_type(spark["keyType"]), _arrow_type(spark["valueType"])
            return None if key is None or value is None else pa.map_(key, value)
        case "struct":
            parts = [_arrow_type(each["type"]) for each in spark["fields"]]
            if any(part is None for part in parts):
                return None
            names = [str(each["name"]) for each in spark["fields"]]
            return pa.struct(list(zip(names, parts, strict=True)))
    return None


def schema_faults(expected: Mapping[str, pa.DataType | None], stored: pa.Schema) -> list[str]:
    """Where a file's columns are not those of its table."""
    if not expected:
        return []
    if list(expected) != stored.names:
        return [f"has the columns {', '.join(stored.names)} instead of {', '.join(expected)}"]
    return [
        f"has {name} as {stored.field(name).type} instead of {wanted}"
        for name, wanted in expected.items()
        if wanted is not None and not _same_kind(wanted, stored.field(name).type)
    ]


def _same_kind(wanted: pa.DataType, stored: pa.DataType) -> bool:
    """Whether rows of one type can be read as the other: names of elements, what is said of nulls,
    zones and the width of lengths do not count.
    """
    types = pa.types
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(stored) and wanted.unit == stored.unit)
    if types.is_string(wanted) or types.is_binary(wanted):
        large = pa.large_string() if types.is_string(wanted) else pa.large_binary()
        return stored in (wanted, large)
    if types.is_list(wanted):
        is_list = types.is_list(stored) or types.is_large_list(stored)
        return is_list and _same_kind(wanted.value_type, stored.value_type)
    if types.is_map(wanted):
        return (
            types.is_map(stored)
            and _same_kind(wanted.key_type, stored.key_type)
            and _same_kind(wanted.item_type, stored.item_type)
        )
    if types.is_struct(wanted):
        return (
            types.is_struct(stored)
            and [each.name for each in wanted] == [each.name for each in stored]
            and all(_same_kind(a.type, b.type) for a, b in zip(wanted, stored, strict=True))
        )
    return bool(wanted == stored)
