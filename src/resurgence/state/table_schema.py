"""Conversion of a state table's schema from Spark's JSON, as in its metadata, to Arrow types.

A type that is unknown here is None, and is not checked.
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
    """Return the columns of a table in order; empty if the metadata has no schema."""
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
    """Return the differences between a file's columns and those of its table."""
    if not expected:
        return []
    if list(expected) != stored.names:
        return [f"has the columns {', '.join(stored.names)} instead of {', '.join(expected)}"]
    return [
        f"has column {name} as {stored.field(name).type} instead of {kind}"
        for name, kind in expected.items()
        if kind is not None and not _same_kind(kind, stored.field(name).type)
    ]


def _same_kind(expected: pa.DataType, stored: pa.DataType) -> bool:
    """Return whether rows of one type can be read as the other. Element names, nullability, time
    zones and the width of lengths are ignored.
    """
    types = pa.types
    if types.is_timestamp(expected):
        return bool(types.is_timestamp(stored) and expected.unit == stored.unit)
    if types.is_string(expected) or types.is_binary(expected):
        large = pa.large_string() if types.is_string(expected) else pa.large_binary()
        return stored in (expected, large)
    if types.is_list(expected):
        is_list = types.is_list(stored) or types.is_large_list(stored)
        return is_list and _same_kind(expected.value_type, stored.value_type)
    if types.is_map(expected):
        return (
            types.is_map(stored)
            and _same_kind(expected.key_type, stored.key_type)
            and _same_kind(expected.item_type, stored.item_type)
        )
    if types.is_struct(expected):
        return (
            types.is_struct(stored)
            and [each.name for each in expected] == [each.name for each in stored]
            and all(_same_kind(a.type, b.type) for a, b in zip(expected, stored, strict=True))
        )
    return bool(expected == stored)
