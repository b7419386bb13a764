"""Spark SQL that decodes the text of Debezium's values for which JSON has no type.

A record with its schema defines how each column is written; `described` is the SQL name of the
array of column descriptions, null in a record without schema. Then the declared type decides: a
whole number is an instant in `unit` for a TIMESTAMP, days since 1970 for a DATE.

Values that the database did not send (unchanged TOAST columns of Postgres) are recognised by the
placeholders that Debezium sends for them.
"""

from __future__ import annotations

import base64

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
)

from resurgence.connectors.formats.options import TimestampUnit

PLACEHOLDER = "__debezium_unavailable_value"
DESCRIPTION = "STRUCT<field: STRING, name: STRING, parameters: MAP<STRING, STRING>>"
"""The type of a column description in a schema."""

DEFAULT_UNIT = TimestampUnit.MICROS
"""What Debezium writes for a Postgres timestamp without a declared precision."""

_MILLIS = ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp")
_MICROS = ("io.debezium.time.MicroTimestamp",)
_NANOS = ("io.debezium.time.NanoTimestamp",)
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"

_DAY_MICROS = 86_400_000_000
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999."""
_IS_WHOLE = "rlike({text}, '^[+-]?[0-9]{{1,19}}$')"
_IS_DATED = "rlike({text}, '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}')"


def is_temporal(kind: str) -> bool:
    """Return whether a column of this declared type may be written as a number."""
    return kind.upper() in {"TIMESTAMP", "TIMESTAMP_NTZ", "DATE"}


def is_decimal(kind: str) -> bool:
    return kind.upper().startswith("DECIMAL")


def temporal_sql(text: str, kind: str, column: str, described: str, unit: str) -> str:
    """Return SQL for a TIMESTAMP, TIMESTAMP_NTZ or DATE from its text; null if it is invalid or out
    of range.
    """
    name = f"{_description(column, described)}.name"
    number = f"try_cast({text} AS BIGINT)"
    by_name = "".join(
        f" WHEN {name} IN ({_listed(names)}) THEN {_micros(number, each)}"
        for names, each in ((_MILLIS, "millis"), (_MICROS, "micros"), (_NANOS, "nanos"))
    )
    days = f"try_multiply({number}, {_DAY_MICROS}L)"
    by_default = days if kind.upper() == "DATE" else _micros(number, unit)
    micros = f"CASE{by_name} WHEN {name} IN ({_listed(_DAYS)}) THEN {days} ELSE {by_default} END"
    in_range = f"{micros} BETWEEN {_FIRST_MICROS}L AND {_LAST_MICROS}L"
    instant = f"IF({in_range}, timestamp_micros({micros}), NULL)"
    return (
        f"CASE WHEN {_IS_WHOLE.format(text=text)} THEN CAST({instant} AS {kind})"
        f" WHEN {_IS_DATED.format(text=text)} THEN try_cast({text} AS {kind}) END"
    )


def decimal_sql(text: str, kind: str, column: str, described: str) -> str:
    """Return SQL for a DECIMAL from its text in a record with its schema; null if it is invalid."""
    description = _description(column, described)
    variable = f"from_json({text}, 'scale INT, value STRING')"
    fixed = _unscaled(text, f"element_at({description}.parameters, 'scale')")
    return (
        f"CASE {description}.name WHEN '{_DECIMAL}' THEN try_cast({fixed} AS {kind})"
        f" WHEN '{_VARIABLE_DECIMAL}' THEN"
        f" try_cast({_unscaled(f'{variable}.value', f'{variable}.scale')} AS {kind})"
        f" ELSE try_cast({text} AS {kind}) END"
    )


def in_range(value: int, kind: str, unit: str) -> bool:
    """Return whether a whole number is an instant or a day of the years 1 to 9999."""
    if kind.upper() == "DATE":
        return _FIRST_MICROS <= value * _DAY_MICROS <= _LAST_MICROS
    scale = {"seconds": 1_000_000, "millis": 1000}.get(unit, 1)
    micros = value // 1000 if unit == "nanos" else value * scale
    return _FIRST_MICROS <= micros <= _LAST_MICROS


def unavailable_sql(value: str, kind: DataType) -> str | None:
    """Return SQL that is true where a value is the placeholder for one that the database did not
    send; None if this type has no placeholder.
    """
    octets = PLACEHOLDER.encode()
    match kind:
        case StringType():
            return f"{value} = '{PLACEHOLDER}'"
        case BinaryType():
            return f"{value} = unbase64('{base64.b64encode(octets).decode()}')"
        case ArrayType(elementType=StringType()):
            return f"{value} = array('{PLACEHOLDER}')"
        case ArrayType(elementType=IntegerType() | LongType()):
            listed = ", ".join(map(str, octets))
            return f"{value} = CAST(array({listed}) AS {kind.simpleString()})"
        case MapType(keyType=StringType()):
            return f"map_keys({value}) = array('{PLACEHOLDER}')"
    return None


def _description(column: str, described: str) -> str:
    name = column.replace("\\", "\\\\").replace("'", "\\'")
    return f"get(filter({described}, each -> each.field = '{name}'), 0)"


def _micros(number: str, unit: str) -> str:
    match unit:
        case "nanos":
            return f"CAST(floor({number} / 1000BD) AS BIGINT)"
        case "micros":
            return number
        case "millis":
            return f"try_multiply({number}, 1000L)"
        case _:
            return f"try_multiply({number}, 1000000L)"


def _unscaled(encoded: str, scale: str) -> str:
    """Return SQL for the text of a decimal from the base64 of its unscaled value, a big-endian
    two's complement of at most 16 bytes.
    """
    digits = f"hex(try_to_binary({encoded}, 'base64'))"
    is_negative = f"substr({digits}, 1, 1) >= '8'"
    # The complement of a negative number is one less than its magnitude, and always fits. Spark's
    # negation of a decimal rounds to 34 digits, so the sign is prepended to the text.
    complement = f"translate({digits}, '0123456789ABCDEF', 'FEDCBA9876543210')"
    whole = f"lpad(IF({is_negative}, {complement}, {digits}), 32, '0')"
    high, low = (
        f"CAST(conv(substr({whole}, {start}, 16), 16, 10) AS DECIMAL(20))" for start in (1, 17)
    )
    value = f"try_add(try_multiply({high}, 18446744073709551616BD), {low})"
    magnitude = f"CAST(IF({is_negative}, try_add({value}, 1BD), {value}) AS STRING)"
    sign, exponent = f"IF({is_negative}, '-', '')", f"CAST(-CAST({scale} AS INT) AS STRING)"
    text = f"concat({sign}, {magnitude}, 'E', {exponent})"
    return f"IF(length({digits}) BETWEEN 2 AND 32, {text}, NULL)"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{each}'" for each in names)
