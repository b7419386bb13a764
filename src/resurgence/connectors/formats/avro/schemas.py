"""Avro schemas: the one that is derived from columns, and the envelope in which records are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from resurgence.errors import UserError

END = bytes.fromhex("9f3c51e7a2d80b64")
"""What follows a record in its envelope. Spark's reader returns a record of nulls for one that it
cannot read, and ignores what follows a record; both are detected by the end.
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: dict[type[DataType], Any] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def derived_schema(columns: Iterable[StructField], name: str) -> str:
    """Return the schema of records with these columns, in their order. All are nullable, whatever
    they are declared as, so that a source and a sink with the same columns have the same schema.
    """
    # The name of a topic may have other characters, and begin with a digit.
    return json.dumps(_record(columns, re.sub(r"[^A-Za-z0-9_]|^(?=[0-9])", "_", name)))


def _record(columns: Iterable[StructField], name: str) -> dict[str, Any]:
    fields = []
    for each in columns:
        if not _NAME.fullmatch(each.name):
            raise UserError(
                f"'{each.name}' cannot be the name of a field in Avro",
                hint="Use only letters, digits and underscores.",
            )
        kind = _nullable(each.dataType, f"{name}_{each.name}")
        fields.append({"name": each.name, "type": kind, "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _nullable(kind: DataType, name: str) -> list[Any]:
    return ["null", _type(kind, name)]


def _type(kind: DataType, name: str) -> Any:
    match kind:
        case StructType():
            return _record(kind, name)
        case ArrayType():
            return {"type": "array", "items": _nullable(kind.elementType, name)}
        case MapType(keyType=StringType()):
            return {"type": "map", "values": _nullable(kind.valueType, name)}
        case DecimalType():
            scale = {"precision": kind.precision, "scale": kind.scale}
            return {"type": "bytes", "logicalType": "decimal", **scale}
    if type(kind) not in _SIMPLE:
        raise UserError(
            f"a value of type {kind.simpleString()} cannot be written as Avro",
            hint="Cast it to another type.",
        )
    return _SIMPLE[type(kind)]


def is_record(schema: str) -> bool:
    """Return whether a text is the JSON of a record's schema."""
    try:
        tree = json.loads(schema)
    except ValueError:
        return False
    return isinstance(tree, dict) and tree.get("type") == "record" and "fields" in tree


def envelope(schema: str) -> str:
    """Return the schema of a record that is followed by END."""
    end = {"type": "fixed", "name": "envelope_end", "size": len(END)}
    fields = [{"name": "record", "type": json.loads(schema)}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "envelope", "fields": fields})
