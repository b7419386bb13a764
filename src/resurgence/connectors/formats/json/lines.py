"""The format `json`: how Spark parses records into columns. `writer` renders columns as them.

A record is one JSON value and nothing else, such as a line. Spark's parser stops at the end of the
first value it finds, so a line is parsed as the first element of an array that we write around it:
anything else on the line breaks that array, or adds elements to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.contract import (
    TEXT,
    Fault,
    Format,
    RecordReader,
    RecordTable,
)
from resurgence.connectors.formats.json.values import (
    DEFAULT_UNIT,
    JsonValue,
    data_type,
    declared_units,
    is_out_of_range,
    parsed_type,
    whole_number_range,
)
from resurgence.connectors.formats.json.writer import JsonSinkOptions, JsonWriter
from resurgence.connectors.formats.line_encoder import LINE_COMPRESSIONS, LineEncoder
from resurgence.connectors.formats.raw_values import RawReader
from resurgence.connectors.formats.record_columns import (
    NO_METADATA,
    RECORD_POSITION_SQL,
    carried,
    declared_values,
)
from resurgence.connectors.formats.text_records import explained
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.table_options import UNSTRUCTURED, TableOptions, option
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
_NO_UNITS: Mapping[str, str] = MappingProxyType({})
_INSTANTS = {"TIMESTAMP", "TIMESTAMP_NTZ"}
MISFIT = "does not fit the table's columns"
OUT_OF_RANGE = "out of range for a"
"""The reason, in part, for a whole number that is not an instant in the unit of its column."""


UNIT_HINT = (
    "Declare the unit of whole numbers with timestamp_unit = 'millis', 'micros' or 'nanos' on the"
    " table, or with 'timestamp_unit.column' for one column."
)


def record_in(parsed: str) -> str:
    """Return SQL for the object in a parsed line; null where the line is `null`."""
    return f"{parsed}.{_LINE}[0]"


_RECORD = record_in("parsed")


class JsonSourceOptions(TableOptions):
    """The options of a source of JSON."""

    unstructured: bool | None = option(
        "`true`: a record is not parsed or validated; its text is the only column that the table"
        " reads, `value TEXT` or `value JSON`. Only a record that is not UTF-8, or a tombstone, is bad",
        default=None,
        name=UNSTRUCTURED,
    )


@dataclass(frozen=True)
class JsonLineReader(RecordReader):
    """Reads the declared columns of a table from its records."""

    columns: tuple[Column, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit, by column, of whole numbers in TIMESTAMP columns; the default is seconds."""

    def parse(
        self, records: DataFrame, metadata: Mapping[str, SparkColumn] = NO_METADATA
    ) -> DataFrame:
        known, names = carried(self.columns, metadata)
        parsed = records.select("position", "text", *known, self._parsed)
        found = parsed.select("position", "parsed", *names, *self._written)
        read = found.select("*", *self._read)
        values = declared_values(self.columns, self._value)
        return read.select(*values, self._bad_position, F.expr(RECORD_POSITION_SQL))

    def explain(self, raw: bytes | None) -> Fault:
        declared = [each for each in self.columns if each.metadata is None]
        return explained(raw, lambda text: explain_text(text, declared, self.units))

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


def object_in(text: str) -> dict[str, Any] | Fault:
    """Return the JSON object in a text, or why there is none."""
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return Fault("more than one JSON value", error.pos + 1)
        return Fault(f"not JSON: {error.msg.lower()}", error.pos + 1)
    except (ValueError, RecursionError) as error:
        return Fault(f"cannot be parsed: {str(error).lower()}", 1)
    return tree if isinstance(tree, dict) else Fault("not a JSON object", 1)


def explain_text(
    text: str, columns: Sequence[Column], units: Mapping[str, str] = _NO_UNITS
) -> Fault:
    """Return why a text did not parse. `units` is as in `JsonLineReader`."""
    tree = object_in(text)
    if isinstance(tree, Fault):
        return tree
    missing = [each.name for each in columns if not each.nullable and tree.get(each.name) is None]
    if missing:
        place = text.find(f'"{missing[0]}"')
        return Fault(f"'{missing[0]}' is NOT NULL and has no value", max(place, 0) + 1)
    for each in columns:
        unit = units.get(each.name, DEFAULT_UNIT)
        if _type_name(each.type) in _INSTANTS and _is_out_of_range(tree.get(each.name), unit):
            reason = f"'{each.name}' is {OUT_OF_RANGE} {each.type} in {unit}: {tree[each.name]}"
            return Fault(reason, _value_column(text, each.name), UNIT_HINT)
    for fits in (_fits, _fits_closely):
        for each in columns:
            if each.name in tree and not fits(tree[each.name], each.type):
                return Fault(
                    f"'{each.name}' is not a {each.type}: {json.dumps(tree[each.name])}",
                    _value_column(text, each.name),
                )
    return Fault(MISFIT, 1)


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


def _reader(table: RecordTable[JsonSourceOptions]) -> RecordReader:
    if table.format_options.unstructured:
        return RawReader(table.columns, TEXT)
    return JsonLineReader(table.columns, declared_units(table.options, table.columns))


JSON = Format(
    FormatSpec("json", source_options=JsonSourceOptions, sink_options=JsonSinkOptions),
    suffix="json",
    is_text=True,
    is_line_based=True,
    reader=_reader,
    writer=JsonWriter,
    encoder=LineEncoder,
    compressions=LINE_COMPRESSIONS,
)
