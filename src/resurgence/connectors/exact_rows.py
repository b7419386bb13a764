"""Rows in a form that Spark can group, sort and compare bit by bit.

Spark's grouping treats -0.0 as 0.0, and 'a' as 'A' in some collations, and cannot order maps. Here
such columns get another form while they are grouped: a number with the sign of its zero, a text by
its bytes, a map as its sorted entries. All other columns stay as they are. Two rows have the same
form only if they are the same row.

So changes can be summed exactly: what is left are the net insertions and retractions.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from resurgence.graph.values import CHANGE

_TIMES = "__times"


class ExactRows:
    """Converts columns to the form in which they can be grouped, and back."""

    def __init__(self, columns: Iterable[StructField]) -> None:
        listed = tuple(columns)
        self.names = tuple(quoted(each.name) for each in listed)
        self.forms = tuple(
            _select(_form(quoted(each.name), each.dataType), quoted(each.name)) for each in listed
        )
        """To select from the columns."""
        self.restored = tuple(
            _select(_restored(quoted(each.name), each.dataType), quoted(each.name))
            for each in listed
        )
        """To select from the forms."""

    def net(self, changes: DataFrame) -> DataFrame:
        """Return the net changes of forms with `CHANGE`: no row is both inserted and retracted."""
        return (
            changes.groupBy(*self.names)
            .agg(F.sum(CHANGE).alias(CHANGE))
            .where(f"{CHANGE} <> 0")
            .selectExpr(
                *self.names,
                f"CAST(sign({CHANGE}) AS INT) AS {CHANGE}",
                f"explode(array_repeat(0, CAST(abs({CHANGE}) AS INT))) AS {_TIMES}",
            )
            .selectExpr(*self.restored, CHANGE)
        )


def net_changes(rows: DataFrame) -> DataFrame:
    """Return the net changes of rows with `CHANGE`: no row is both inserted and retracted."""
    exact = ExactRows(each for each in rows.schema if each.name != CHANGE)
    return exact.net(rows.selectExpr(*exact.forms, CHANGE))


def quoted(name: str) -> str:
    """Return a column's name as SQL text."""
    return "`" + name.replace("`", "``") + "`"


def _select(sql: str, name: str) -> str:
    return name if sql == name else f"{sql} AS {name}"


def _form(sql: str, kind: DataType, depth: int = 0) -> str:
    if _is_plain(kind):
        return sql
    item = f"item_{depth}"
    if isinstance(kind, StringType):
        return f"({sql} COLLATE UTF8_BINARY)"
    if isinstance(kind, FloatType | DoubleType):
        is_negative_zero = f"({sql} = 0 AND startswith(CAST({sql} AS STRING), '-'))"
        return f"named_struct('value', {sql}, 'is_negative_zero', {is_negative_zero})"
    if isinstance(kind, ArrayType):
        return f"transform({sql}, {item} -> {_form(item, kind.elementType, depth + 1)})"
    if isinstance(kind, MapType):
        key = _form(f"{item}.key", kind.keyType, depth + 1)
        value = _form(f"{item}.value", kind.valueType, depth + 1)
        entry = f"named_struct('key', {key}, 'value', {value})"
        return f"array_sort(transform(map_entries({sql}), {item} -> {entry}))"
    assert isinstance(kind, StructType)
    return _struct(
        sql, kind, [_form(f"{sql}.{quoted(each.name)}", each.dataType, depth) for each in kind]
    )


def _restored(sql: str, kind: DataType, depth: int = 0) -> str:
    if _is_plain(kind):
        return sql
    item = f"item_{depth}"
    if isinstance(kind, StringType):
        return f"({sql} COLLATE {kind.collation})"
    if isinstance(kind, FloatType | DoubleType):
        return f"IF({sql}.is_negative_zero, -abs({sql}.value), {sql}.value)"
    if isinstance(kind, ArrayType):
        return f"transform({sql}, {item} -> {_restored(item, kind.elementType, depth + 1)})"
    if isinstance(kind, MapType):
        key = _restored(f"{item}.key", kind.keyType, depth + 1)
        value = _restored(f"{item}.value", kind.valueType, depth + 1)
        entry = f"named_struct('key', {key}, 'value', {value})"
        return f"map_from_entries(transform({sql}, {item} -> {entry}))"
    assert isinstance(kind, StructType)
    return _struct(
        sql, kind, [_restored(f"{sql}.{quoted(each.name)}", each.dataType, depth) for each in kind]
    )


def _struct(sql: str, kind: StructType, values: Iterable[str]) -> str:
    fields = ", ".join(
        f"{value} AS {quoted(each.name)}" for value, each in zip(values, kind, strict=True)
    )
    return f"IF({sql} IS NULL, NULL, struct({fields}))"


def _is_plain(kind: DataType) -> bool:
    """Return whether Spark groups and orders the type exactly."""
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_plain(each.dataType) for each in kind)
    if isinstance(kind, StringType):
        return kind == StringType()
    return not isinstance(kind, FloatType | DoubleType | MapType)
