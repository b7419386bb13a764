"""The columns of a sink's rows and those of its table. Pure.

Columns that the table lacks are added. A value may be stored in a wider type. Everything else is
refused: a table has other readers and writers, which a sink must not surprise.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from resurgence.errors import UserError


def require_storable(table: str, rows: pa.Schema) -> None:
    """Raise UserError if Iceberg has no type for a column."""
    for each in rows:
        if not _is_storable(each.type):
            raise UserError(
                f"table '{table}': column '{each.name}' is of type {each.type}, which Iceberg tables"
                " do not have",
                hint="Cast the column in the query.",
            )


def _is_storable(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return all(_is_storable(kind.field(each).type) for each in range(kind.num_fields))
    return not (pa.types.is_interval(kind) or pa.types.is_duration(kind) or pa.types.is_null(kind))


def missing_columns(table: str, stored: pa.Schema, rows: pa.Schema) -> tuple[pa.Field, ...]:
    """Return the columns that must be added to a table. Raise UserError if the rows do not fit the
    others.
    """
    known = {each.name.lower(): each for each in stored}
    given = {each.name.lower() for each in rows}
    missing = []
    for each in rows:
        held = known.get(each.name.lower())
        if held is None:
            missing.append(each.with_nullable(True))
        elif not fits(each.type, held.type):
            raise UserError(
                f"table '{table}': column '{each.name}' is of type {each.type}, but the Iceberg table"
                f" has {held.type}",
                hint="Cast the column in the query, or write to another table. Only added columns"
                " change an existing table.",
            )
    for held in stored:
        if not held.nullable and held.name.lower() not in given:
            raise UserError(
                f"table '{table}': the Iceberg table requires a value in column '{held.name}', which"
                " is not written",
                hint="Add the column to the query, or make it optional in the table.",
            )
    return tuple(missing)


def fits(given: pa.DataType, stored: pa.DataType) -> bool:
    """Return whether all values of a type can be stored as another."""
    types = pa.types
    if types.is_integer(given):
        return bool(types.is_integer(stored) and given.bit_width <= stored.bit_width)
    if types.is_floating(given):
        return bool(types.is_floating(stored) and given.bit_width <= stored.bit_width)
    if types.is_decimal(given):
        return bool(
            types.is_decimal(stored)
            and given.scale == stored.scale
            and given.precision <= stored.precision
        )
    if types.is_timestamp(given):
        return types.is_timestamp(stored) and (given.tz is None) == (stored.tz is None)
    for is_kind in (_is_text, _is_bytes, types.is_boolean, types.is_date, types.is_time):
        if is_kind(given):
            return bool(is_kind(stored))
    return _nested_fits(given, stored)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _nested_fits(given: pa.DataType, stored: pa.DataType) -> bool:
    if _is_list(given):
        return _is_list(stored) and fits(given.value_type, stored.value_type)
    if pa.types.is_map(given):
        return (
            pa.types.is_map(stored)
            and fits(given.key_type, stored.key_type)
            and fits(given.item_type, stored.item_type)
        )
    if pa.types.is_struct(given) and pa.types.is_struct(stored):
        pairs = zip(given.fields, stored.fields, strict=False)
        return given.num_fields == stored.num_fields and all(
            one.name == other.name and fits(one.type, other.type) for one, other in pairs
        )
    return False


def stored_order(stored: pa.Schema, written: Sequence[str]) -> pa.Schema:
    """Return those fields of a table's schema that are written, in the order of the table."""
    names = {each.lower() for each in written}
    return pa.schema([each for each in stored if each.name.lower() in names])
