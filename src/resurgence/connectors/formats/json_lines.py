"""JSON lines: how Spark parses them into columns, and renders columns as them.

A line is one JSON value and nothing else. Spark's parser stops at the end of the first value it
finds, so a line is parsed as the first element of an array that we write around it: anything else
on the line breaks that array, or adds elements to it.

Timestamps are written as ISO 8601 in UTC without a zone, with no, three or six fractional digits.
Nulls are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from resurgence.connectors.contract import BAD_POSITION, RECORD_POSITION
from resurgence.connectors.formats.contract import BadLine, Format, LineReader, RecordTable
from resurgence.connectors.formats.json_values import (
    DEFAULT_UNIT,
    JsonValue,
    data_type,
    declared_units,
    is_out_of_range,
    parsed_type,
    whole_number_range,
)
from resurgence.connectors.formats.line_encoder import LINE, LineEncoder
from resurgence.connectors.formats.options import TimestampFormat
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.values import Column

_CORRUPT = "__corrupt"
_LINE = "__line_7c1f0b52"
"""A name that occurs in no line: a line with it could close the array and begin another."""
_WRAPPED_LINE = f"""concat('{{"{_LINE}":[', text, ',null],"end":0}}')"""
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
}
_INTEGER_BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_NONE: Mapping[str, SparkColumn] = MappingProxyType({})
_NO_UNITS: Mapping[str, str] = MappingProxyType({})
_INSTANTS = {"TIMESTAMP", "TIMESTAMP_NTZ"}
OUT_OF_RANGE = "out of range for a"
"""The reason, in part, for a whole number that is not an instant in the unit of its column."""
_NOT_BLANK = "startswith(text, '{') OR text IS NULL OR length(trim(BOTH ' \t\r' FROM text)) > 0"


def record_in(parsed: str) -> str:
    """Return SQL for the object in a parsed line; null where the line is `null`."""
    return f"{parsed}.{_LINE}[0]"


_RECORD = record_in("parsed")
_RECORD_POSITION = f"position AS `{RECORD_POSITION}`"


@dataclass(frozen=True)
class JsonLineReader:
    """Reads the declared columns of a table from its lines."""

    columns: tuple[Column, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit, by column, of whole numbers in TIMESTAMP columns; the default is seconds."""

    def parse(self, lines: DataFrame, metadata: Mapping[str, SparkColumn] = _NONE) -> DataFrame:
        """Convert columns `position` and `text` to the declared columns, BAD_POSITION and
        RECORD_POSITION. Blank lines are skipped; a null is a line that is not UTF-8. `metadata` has
        expressions over `position`, by key.
        """
        parsed = lines.where(_NOT_BLANK).select("position", "text", self._parsed)
        found = parsed.select("position", "parsed", *self._written)
        read = found.select("*", *self._read)
        values = _values(self.columns, metadata, self._value)
        return read.select(*values, self._bad_position, F.expr(_RECORD_POSITION))

    def explain_bad_line(self, text: str) -> BadLine:
        declared = [each for each in self.columns if each.metadata is None]
        return *explain_bad_line(text, declared, self.units), None

    @cached_property
    def _json_values(self) -> dict[str, JsonValue]:
        return {
            each.name: JsonValue(
                data_type(each.type),
                f"{_RECORD}.`{each.name}`",
                f"`written_{each.name}`",
                self.units.get(each.name, DEFAULT_UNIT),
            )
            for each in self.columns
            if each.metadata is None
        }

    # Spark's SQL parser is slow, so the expressions are cached for the next epoch.

    @cached_property
    def _parsed(self) -> SparkColumn:
        members = (
            f"`{name}`: {parsed_type(each.kind)}" for name, each in self._json_values.items()
        )
        return parsed_line(", ".join(members)).alias("parsed")

    @cached_property
    def _written(self) -> list[SparkColumn]:
        """The text of values in their line, where it is needed."""
        found = {name: each.found_in("text", name) for name, each in self._json_values.items()}
        return [F.expr(f"{sql} AS `written_{name}`") for name, sql in found.items() if sql]

    @cached_property
    def _read(self) -> list[SparkColumn]:
        """The values that are used twice: as such, and to check whether they could be read."""
        values = self._json_values.items()
        read = [f"{each.read} AS `read_{name}`" for name, each in values if each.is_temporal]
        faults = [each.is_misread for _, each in values if not each.is_temporal]
        is_misread = " OR ".join(each for each in faults if each is not None) or "false"
        return [F.expr(each) for each in (*read, f"{is_misread} AS is_misread")]

    def _value(self, column: Column) -> str:
        value = self._json_values[column.name]
        return f"`read_{column.name}`" if value.is_temporal else value.read

    @cached_property
    def _bad_position(self) -> SparkColumn:
        faults = [is_malformed("parsed"), f"{_RECORD} IS NULL", "is_misread"]
        for each in self.columns:
            if each.metadata is not None:
                continue
            value = self._json_values[each.name]
            if value.is_temporal:
                faults.append(f"{value.sql} IS NOT NULL AND {is_out_of_range(self._value(each))}")
            if not each.nullable:
                faults.append(f"{value.sql} IS NULL")
        return F.expr(f"IF({' OR '.join(faults)}, position, NULL) AS `{BAD_POSITION}`")


def parsed_line(members: str) -> SparkColumn:
    """Return the column `text` parsed as a JSON object with these members, written as in a STRUCT
    type of Spark SQL. `record_in` and `is_malformed` read the result.
    """
    schema = f"{_LINE} ARRAY<STRUCT<{members}>>, end INT, `{_CORRUPT}` STRING"
    return F.from_json(F.expr(_WRAPPED_LINE), schema, _OPTIONS)


def is_malformed(parsed: str) -> str:
    """Return SQL that is true where a parsed line is not one JSON value that fits the members."""
    return (
        f"({parsed} IS NULL OR {parsed}.`{_CORRUPT}` IS NOT NULL OR {parsed}.end IS NULL"
        f" OR size({parsed}.{_LINE}) <> 2 OR {parsed}.{_LINE}[1] IS NOT NULL)"
    )


@dataclass(frozen=True)
class UnstructuredLineReader:
    """Reads lines without parsing: one declared column is the text, the others are metadata."""

    columns: tuple[Column, ...]

    def parse(self, lines: DataFrame, metadata: Mapping[str, SparkColumn] = _NONE) -> DataFrame:
        return lines.where(_NOT_BLANK).select(
            *_values(self.columns, metadata, lambda _: "text"),
            F.expr(f"IF(text IS NULL, position, NULL) AS `{BAD_POSITION}`"),
            F.expr(_RECORD_POSITION),
        )

    def explain_bad_line(self, text: str) -> BadLine:
        """Return no specific reason: every text is valid."""
        return "cannot be read", 1, None


def _values(
    columns: Sequence[Column],
    metadata: Mapping[str, SparkColumn],
    inside: Callable[[Column], str],
) -> Iterator[SparkColumn]:
    """Yield the declared columns of a record: its metadata, or the SQL that `inside` returns."""
    for each in columns:
        value = F.expr(inside(each)) if each.metadata is None else metadata[each.metadata]
        yield value.alias(each.name)


def render(rows: DataFrame, timestamps: TimestampFormat = TimestampFormat.RFC3339) -> DataFrame:
    """Render rows as one column of text, each ending in a newline."""
    written = _as_millis if timestamps is TimestampFormat.UNIX_MILLIS else _as_text
    fields = ", ".join(
        f"{_portable(f'`{each.name}`', each.dataType, written)} AS `{each.name}`"
        for each in rows.schema
    )
    return rows.selectExpr(
        f"concat(to_json(struct({fields}), map('ignoreNullFields', 'false')), '\\n') AS {LINE}"
    )


def _as_text(timestamp: str) -> str:
    # Spark writes as few fractional digits as possible, and none for zero.
    text = f"replace(CAST({timestamp} AS STRING), ' ', 'T')"
    point = f"instr({text}, '.')"
    digits = f"IF(length({text}) - {point} > 3, 6, 3)"
    return f"IF({point} = 0, {text}, rpad({text}, {point} + {digits}, '0'))"


def _as_millis(timestamp: str) -> str:
    return f"unix_millis(CAST({timestamp} AS TIMESTAMP))"


def _portable(sql: str, kind: DataType, written: Callable[[str], str]) -> str:
    """Return SQL for a value as it is written in JSON: timestamps, at any depth, by `written`."""
    if isinstance(kind, TimestampType | TimestampNTZType):
        return written(sql)
    if not _holds_timestamp(kind):
        return sql
    if isinstance(kind, StructType):
        fields = ", ".join(
            f"{_portable(f'{sql}.`{each.name}`', each.dataType, written)} AS `{each.name}`"
            for each in kind
        )
        return f"IF({sql} IS NULL, NULL, struct({fields}))"
    if isinstance(kind, ArrayType):
        return f"transform({sql}, item -> {_portable('item', kind.elementType, written)})"
    if isinstance(kind, MapType):
        value = _portable("item", kind.valueType, written)
        return f"transform_values({sql}, (name, item) -> {value})"
    return sql


def _holds_timestamp(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_timestamp(each.dataType) for each in kind)
    if isinstance(kind, ArrayType):
        return _holds_timestamp(kind.elementType)
    if isinstance(kind, MapType):
        return _holds_timestamp(kind.valueType)
    return isinstance(kind, TimestampType | TimestampNTZType)


def object_in(text: str) -> dict[str, Any] | tuple[str, int]:
    """Return the JSON object in a line, or (reason, column from 1) if there is none."""
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return "more than one JSON value on the line", error.colno
        return f"not JSON: {error.msg.lower()}", error.colno
    except (ValueError, RecursionError) as error:
        return f"cannot be parsed: {str(error).lower()}", 1
    return tree if isinstance(tree, dict) else ("not a JSON object", 1)


def explain_bad_line(
    text: str, columns: Sequence[Column], units: Mapping[str, str] = _NO_UNITS
) -> tuple[str, int]:
    """Return (reason, column from 1) for a line that did not parse. `units` is as in
    `JsonLineReader`.
    """
    tree = object_in(text)
    if not isinstance(tree, dict):
        return tree
    missing = [each.name for each in columns if not each.nullable and tree.get(each.name) is None]
    if missing:
        place = text.find(f'"{missing[0]}"')
        return f"'{missing[0]}' is NOT NULL and has no value", max(place, 0) + 1
    for each in columns:
        unit = units.get(each.name, DEFAULT_UNIT)
        if _type_name(each.type) in _INSTANTS and _is_out_of_range(tree.get(each.name), unit):
            reason = f"'{each.name}' is {OUT_OF_RANGE} {each.type} in {unit}: {tree[each.name]}"
            return reason, _value_column(text, each.name)
    for fits in (_fits, _fits_closely):
        for each in columns:
            if each.name in tree and not fits(tree[each.name], each.type):
                return (
                    f"'{each.name}' is not a {each.type}: {json.dumps(tree[each.name])}",
                    _value_column(text, each.name),
                )
    return "does not fit the table's columns", 1


def _fits(value: object, kind: str) -> bool:
    name = _type_name(kind)
    if value is None or name in {"STRING", "BINARY"}:
        return True
    if name == "BOOLEAN":
        return isinstance(value, bool)
    if name in _INTEGER_BITS:
        bits = _INTEGER_BITS[name]
        return type(value) is int and -(2**bits) <= value < 2**bits
    if name in {"FLOAT", "DOUBLE", "DECIMAL"}:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if name in _INSTANTS and type(value) is int:
        return True
    if name in _INSTANTS or name == "DATE":
        return isinstance(value, str) and value[:4].isdigit() and value[4:8:3] == "--"
    return True


def _is_out_of_range(value: object, unit: str) -> bool:
    least, greatest = whole_number_range(unit)
    return type(value) is int and not least <= value <= greatest


def _fits_closely(value: object, kind: str) -> bool:
    """Return whether an instant is written as in ISO 8601. Stricter than Spark: for a line in which
    nothing else is wrong.
    """
    if not isinstance(value, str) or _type_name(kind) not in {*_INSTANTS, "DATE"}:
        return True
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _type_name(kind: str) -> str:
    return kind.upper().split("(")[0].split("<")[0]


def _value_column(text: str, name: str) -> int:
    key = text.find(f'"{name}"')
    after = text.find(":", key) + 1
    return after + len(text[after:]) - len(text[after:].lstrip()) + 1


def _line_reader(table: RecordTable) -> LineReader:
    if table.options.unstructured:
        return UnstructuredLineReader(table.columns)
    return JsonLineReader(table.columns, declared_units(table.options, table.columns))


JSON = Format(
    FormatSpec("json", has_timestamp_format=True),
    suffix="json",
    is_line_based=True,
    line_reader=_line_reader,
    encoder=LineEncoder,
    prepared=lambda rows, settings: render(rows, settings.timestamps),
)
