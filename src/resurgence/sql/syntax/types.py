"""Declared SQL types as Spark SQL type text."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.expressions import DType

from resurgence.errors import did_you_mean
from resurgence.sql.syntax.parse import Script

_SIMPLE: dict[DType, str] = {
    DType.BOOLEAN: "BOOLEAN",
    DType.TINYINT: "TINYINT",
    DType.SMALLINT: "SMALLINT",
    DType.INT: "INT",
    DType.BIGINT: "BIGINT",
    # Spark has no unsigned numbers: the next wider type holds all values.
    DType.UTINYINT: "SMALLINT",
    DType.USMALLINT: "INT",
    DType.UINT: "BIGINT",
    DType.UBIGINT: "DECIMAL(20,0)",
    DType.FLOAT: "FLOAT",
    DType.DOUBLE: "DOUBLE",
    DType.TEXT: "STRING",
    DType.CHAR: "STRING",
    DType.NCHAR: "STRING",
    DType.VARCHAR: "STRING",
    DType.NVARCHAR: "STRING",
    DType.BINARY: "BINARY",
    DType.VARBINARY: "BINARY",
    DType.BLOB: "BINARY",
    # JSON is stored as its text; the JSON functions and arrows read it.
    DType.JSON: "STRING",
    DType.JSONB: "STRING",
    DType.DATE: "DATE",
    DType.TIMESTAMP: "TIMESTAMP",
    DType.TIMESTAMPTZ: "TIMESTAMP",
    DType.TIMESTAMPLTZ: "TIMESTAMP",
    DType.DATETIME: "TIMESTAMP",
    DType.TIMESTAMPNTZ: "TIMESTAMP_NTZ",
    DType.VARIANT: "VARIANT",
}

_NAMES = (
    *(
        "ARRAY",
        "BIGINT",
        "BINARY",
        "BOOLEAN",
        "BYTEA",
        "CHAR",
        "DATE",
        "DECIMAL",
        "DOUBLE",
        "FLOAT",
        "INT",
    ),
    *(
        "INTEGER",
        "JSON",
        "MAP",
        "NUMERIC",
        "REAL",
        "SMALLINT",
        "STRING",
        "STRUCT",
        "TEXT",
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
    ),
    *("TINYINT", "VARCHAR", "VARIANT"),
)


def spark_type(node: exp.Expr, script: Script) -> str:
    """Return the Spark SQL text of a declared type; raise SqlError if Spark has no such type."""
    if isinstance(node, exp.DataType):
        if simple := _SIMPLE.get(node.this):
            return simple
        if compound := _COMPOUND.get(node.this):
            return compound(node, script)
    name = node.sql()
    raise script.error(node, f"there is no type '{name}'", did_you_mean(name, _NAMES))


def _decimal(node: exp.DataType, script: Script) -> str:
    digits = [each.name for each in node.expressions] or ["10"]
    precision, scale = (*digits, "0")[:2]
    if not (
        precision.isdigit()
        and scale.isdigit()
        and 1 <= int(precision) <= 38
        and int(scale) <= int(precision)
    ):
        raise script.error(
            node, "a DECIMAL must have a precision of 1 to 38 and a scale that is not larger"
        )
    return f"DECIMAL({precision},{scale})"


def _array(node: exp.DataType, script: Script) -> str:
    return f"ARRAY<{', '.join(_elements(node, script, 1))}>"


def _map(node: exp.DataType, script: Script) -> str:
    return f"MAP<{', '.join(_elements(node, script, 2))}>"


def _elements(node: exp.DataType, script: Script, count: int) -> list[str]:
    if len(node.expressions) != count:
        example = "ARRAY<INT>" if count == 1 else "MAP<STRING, INT>"
        raise script.error(node, "the type needs its element types", f"Write it as in {example}.")
    return [spark_type(each, script) for each in node.expressions]


def _struct(node: exp.DataType, script: Script) -> str:
    fields = [each for each in node.expressions if isinstance(each, exp.ColumnDef) and each.kind]
    if not fields or len(fields) != len(node.expressions):
        hint = "Write it as in STRUCT<id: INT, name: STRING>."
        raise script.error(node, "the type needs its fields", hint)
    texts = (
        f"{exp.to_identifier(each.name, quoted=True).sql('spark')}: {spark_type(each.kind, script)}"
        for each in fields
        if each.kind
    )
    return f"STRUCT<{', '.join(texts)}>"


_COMPOUND: dict[DType, Callable[[exp.DataType, Script], str]] = {
    DType.DECIMAL: _decimal,
    DType.ARRAY: _array,
    DType.LIST: _array,
    DType.MAP: _map,
    DType.STRUCT: _struct,
}
