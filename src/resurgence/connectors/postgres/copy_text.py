"""Rows as the text that COPY reads: CSV, written by Arrow column by column.

Spark renders what Arrow cannot write: bytes, arrays, and nested values as JSON. An array is an array
literal, in which every value is quoted.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from resurgence.connectors.formats.json.writer import value_sql
from resurgence.connectors.postgres.column_types import TargetColumn

_OPTIONS = pc.WriteOptions(include_header=False)
"""A null is nothing; every other text is quoted, also an empty one."""


def rendered(rows: DataFrame, columns: Sequence[TargetColumn]) -> DataFrame:
    """Return rows with columns that Arrow writes as COPY reads them, under the names of the table's
    columns. `columns` has one for each column of the rows.
    """
    return rows.selectExpr(
        *(
            f"{_rendered(field, column)} AS {_name(column.name)}"
            for field, column in zip(rows.schema, columns, strict=True)
        )
    )


def _rendered(field: StructField, column: TargetColumn) -> str:
    name, kind = _name(field.name), field.dataType
    if isinstance(kind, ArrayType) and column.element is not None:
        return _array(name, kind.elementType)
    if isinstance(kind, ArrayType | MapType | StructType):
        return value_sql(field)
    return _text(name, kind) if isinstance(kind, BinaryType) else name


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _array(sql: str, kind: DataType) -> str:
    text = f"CAST({_text('item', kind)} AS STRING)"
    escaped = f"replace(replace({text}, '\\\\', '\\\\\\\\'), '\"', '\\\\\"')"
    items = f"transform({sql}, item -> IF(item IS NULL, 'NULL', concat('\"', {escaped}, '\"')))"
    return f"concat('{{', array_join({items}, ','), '}}')"


def _text(sql: str, kind: DataType) -> str:
    if isinstance(kind, BinaryType):
        return f"concat('\\\\x', hex({sql}))"
    if isinstance(kind, TimestampType | TimestampNTZType):
        return f"date_format({sql}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
    return sql


def copy_text(batch: pa.RecordBatch) -> memoryview:
    """Return a batch as CSV."""
    out = pa.BufferOutputStream()
    pc.write_csv(batch, out, _OPTIONS)
    return memoryview(out.getvalue())
