"""Which columns of a table hold the values of which Spark types. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resurgence.connectors.postgres.location import quoted, quoted_table
from resurgence.errors import UserError

_INTEGERS = ("int2", "int4", "int8")
_FITTING = {
    "BOOLEAN": ("bool",),
    "TINYINT": (*_INTEGERS, "numeric"),
    "SMALLINT": (*_INTEGERS, "numeric"),
    "INT": (*_INTEGERS, "numeric", "float8"),
    "BIGINT": (*_INTEGERS, "numeric"),
    "FLOAT": ("float4", "float8"),
    "DOUBLE": ("float8",),
    "DECIMAL": ("numeric",),
    "BINARY": ("bytea",),
    "DATE": ("date",),
    "TIMESTAMP": ("timestamptz", "timestamp"),
    "TIMESTAMP_NTZ": ("timestamp",),
}
"""The types of columns that hold every value of a Spark type, but for their range."""
_DOCUMENTS = ("json", "jsonb", "text")
"""The types that hold any value as JSON."""
_ARRAYS, _NESTED = "ARRAY", ("ARRAY", "MAP", "STRUCT")
_CREATED_AS = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamptz",
    "TIMESTAMP_NTZ": "timestamp",
}
_NUMERIC_HEADER = 4
"""What PostgreSQL adds to the modifier of `numeric(p, s)`, which is `p << 16 | s`."""


@dataclass(frozen=True)
class TargetColumn:
    """A column of the table."""

    name: str
    declared: str
    """Its type as SQL."""
    type: str
    """The internal name of its type; of a domain, that of its base type."""
    element: str | None = None
    """That of the elements of an array."""
    modifier: int = -1
    not_null: bool = False
    has_default: bool = False
    is_generated: bool = False
    """Only the server can write it."""

    @property
    def scale(self) -> int | None:
        """The digits after the decimal point that a `numeric` is limited to; None if unlimited."""
        return (self.modifier - _NUMERIC_HEADER) & 0x7FF if self.modifier >= 0 else None


@dataclass(frozen=True)
class WrittenColumn:
    """A column of the rows: its name and its Spark SQL type."""

    name: str
    type: str


def require_column(table: str, written: WrittenColumn, column: TargetColumn) -> None:
    """Raise UserError if a column of a table cannot be written with such values."""
    if column.is_generated:
        raise UserError(
            f"column '{column.name}' of table {table} is generated and cannot be written",
            hint="Leave it out of the query.",
        )
    reason = misfit(written.type, column)
    if reason is not None:
        raise UserError(
            f"column '{column.name}' of table {table} is {column.declared} and cannot hold"
            f" {written.type}{reason}",
            hint="Cast it in the query, or change the type of the column.",
        )


def misfit(kind: str, column: TargetColumn) -> str | None:
    """Return why a column cannot hold the values of a Spark SQL type, as the end of a sentence; None
    if it can.
    """
    name = kind.upper().split("(")[0].split("<")[0]
    if name in _NESTED:
        if column.type in _DOCUMENTS:
            return None
        if name == _ARRAYS and column.element is not None:
            element = TargetColumn(column.name, column.declared, column.element)
            return misfit(kind[len("ARRAY<") : -1], element)
        return ""
    if name == "STRING":
        return None if _is_text(column) else ""
    if column.type not in _FITTING.get(name, ()):
        return ""
    if name == "DECIMAL" and column.scale is not None:
        _, _, scale = kind.rstrip(")").partition(",")
        if int(scale or 0) > column.scale:
            return ": digits after the decimal point would be lost"
    return None


def _is_text(column: TargetColumn) -> bool:
    """Return whether the server reads values of the column from text, as no other type does."""
    others = {each for types in _FITTING.values() for each in types}
    return column.type not in others and column.element is None


def creation_hint(table: str, columns: Sequence[WrittenColumn], keys: Sequence[str]) -> str:
    """Return the hint for a table that does not exist."""
    if not columns:
        return "Create it, with the columns of the query."
    created = [f"{quoted(each.name)} {_created_as(each.type)}" for each in columns]
    if keys:
        created.append(f"PRIMARY KEY ({', '.join(map(quoted, keys))})")
    return f"Create it: CREATE TABLE {quoted_table(table)} ({', '.join(created)})."


def _created_as(kind: str) -> str:
    if kind.startswith("ARRAY<") and kind[6:-1] in _CREATED_AS:
        return f"{_CREATED_AS[kind[6:-1]]}[]"
    if kind.startswith("DECIMAL"):
        return kind.replace("DECIMAL", "numeric")
    return _CREATED_AS.get(kind, "jsonb")
