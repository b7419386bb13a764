"""The format `csv`: values separated by a delimiter, quoted as in RFC 4180, in the order of the
declared columns. There is no header.

An absent value is null, and an empty text is written in quotes. Timestamps, dates and bytes are
read as text and converted as in JSON; Spark's parser would guess their format.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.contract import (
    VALUE,
    Fault,
    Format,
    RecordReader,
    RecordTable,
    RecordWriter,
    WriteSettings,
)
from resurgence.connectors.formats.json.lines import MISFIT
from resurgence.connectors.formats.json.values import (
    DEFAULT_UNIT,
    JsonValue,
    data_type,
    declared_units,
    is_out_of_range,
)
from resurgence.connectors.formats.json.writer import timestamp_text
from resurgence.connectors.formats.line_encoder import LINE_COMPRESSIONS, LineEncoder
from resurgence.connectors.formats.record_columns import (
    NO_METADATA,
    RECORD_POSITION_SQL,
    carried,
    declared_values,
)
from resurgence.connectors.formats.text_records import explained
from resurgence.errors import UserError
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.table_options import TableOptions, option
from resurgence.graph.values import Column

_CORRUPT = "__corrupt"
_NULL = "__null_7c1f0b52"
"""What Spark's parser returns for an absent value. It occurs in no record."""
_NESTED = (StructType, ArrayType, MapType)
_TEMPORAL = (TimestampType, TimestampNTZType, DateType)


def _one_character(text: str) -> str:
    if len(text) != 1 or text in '"\n\r':
        raise ValueError("not one character")
    return text


class CsvOptions(TableOptions):
    """The options of a table of CSV."""

    delimiter: Annotated[str, AfterValidator(_one_character)] = option(
        "the character between two values; `,` by default",
        default=",",
        name="csv.delimiter",
        hint="Use one character other than a quote or a line break, as in ';'.",
    )


@dataclass(frozen=True)
class CsvReader(RecordReader):
    """Reads the declared columns of a table, in their order."""

    columns: tuple[Column, ...]
    delimiter: str = ","
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit, by column, of whole numbers in TIMESTAMP columns."""

    def parse(
        self, records: DataFrame, metadata: Mapping[str, SparkColumn] = NO_METADATA
    ) -> DataFrame:
        known, names = carried(self.columns, metadata)
        parsed = records.select("position", "text", *known, self._parsed)
        read = parsed.select("position", "text", "parsed", *names, *self._converted)
        values = declared_values(self.columns, self._value)
        return read.select(*values, self._bad_position, F.expr(RECORD_POSITION_SQL))

    def explain(self, raw: bytes | None) -> Fault:
        return explained(raw, self._explain_text)

    @cached_property
    def _kinds(self) -> dict[str, DataType]:
        """The types of the columns in a record."""
        kinds = {each.name: data_type(each.type) for each in self.columns if each.metadata is None}
        for name, kind in kinds.items():
            _require_flat(name, kind)
        return kinds

    @cached_property
    def _parsed(self) -> SparkColumn:
        members = [
            f"`{name}` {'STRING' if _is_converted(kind) else kind.simpleString()}"
            for name, kind in self._kinds.items()
        ]
        schema = ", ".join([*members, f"`{_CORRUPT}` STRING"])
        options = {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _CORRUPT,
            "delimiter": self.delimiter,
            "escape": '"',
            "nullValue": _NULL,
            "positiveInf": "Infinity",
            "negativeInf": "-Infinity",
            "maxCharsPerColumn": "-1",
        }
        return F.from_csv("text", schema, options).alias("parsed")

    @cached_property
    def _converted(self) -> list[SparkColumn]:
        found = ((name, self._conversion(name, kind)) for name, kind in self._kinds.items())
        return [F.expr(f"{sql} AS `read_{name}`") for name, sql in found if sql is not None]

    def _conversion(self, name: str, kind: DataType) -> str | None:
        """Return SQL for a value that is read as text, or None for any other."""
        text = f"parsed.`{name}`"
        if isinstance(kind, BinaryType):
            return f"try_to_binary({text}, 'base64')"
        if isinstance(kind, _TEMPORAL):
            return JsonValue(kind, text, text, self.units.get(name, DEFAULT_UNIT)).read
        return None

    def _value(self, column: Column) -> str:
        kind = self._kinds[column.name]
        return f"`read_{column.name}`" if _is_converted(kind) else f"parsed.`{column.name}`"

    @cached_property
    def _bad_position(self) -> SparkColumn:
        faults = [
            "text IS NULL",
            f"parsed.`{_CORRUPT}` IS NOT NULL",
            # Spark's parser accepts a quote that is never closed.
            "(length(text) - length(replace(text, '\"', ''))) % 2 = 1",
            # It reads the first line of several, and drops the others.
            "text RLIKE '[\\\\r\\\\n]' AND"
            " regexp_replace(text, '\"[^\"]*\"', '') RLIKE '[\\\\r\\\\n].'",
        ]
        if len(self._kinds) > 1:
            faults.append("text = ''")
        for each in self.columns:
            if each.metadata is not None:
                continue
            text, value, kind = f"parsed.`{each.name}`", self._value(each), self._kinds[each.name]
            if isinstance(kind, _TEMPORAL):
                faults.append(f"{text} IS NOT NULL AND {is_out_of_range(value)}")
            elif isinstance(kind, BinaryType):
                faults.append(f"{text} IS NOT NULL AND {value} IS NULL")
            if not each.nullable:
                faults.append(f"{text} IS NULL")
        condition = " OR ".join(f"({each})" for each in faults)
        return F.expr(f"IF({condition}, position, NULL) AS `{BAD_POSITION}`")

    def _explain_text(self, text: str) -> Fault:
        declared = [each for each in self.columns if each.metadata is None]
        if text.count('"') % 2:
            return Fault("a quote is not closed", text.rfind('"') + 1)
        try:
            lines = [*csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)]
        except csv.Error as error:
            return Fault(str(error))
        if len(lines) > 1:
            return Fault(f"{len(lines)} lines, but a record is one")
        fields = lines[0] if lines else []
        if len(fields) != len(declared):
            return Fault(f"{len(fields)} values, but the table has {len(declared)} columns")
        for each, value in zip(declared, fields, strict=True):
            if not value and not each.nullable:
                return Fault(f"'{each.name}' is NOT NULL and has no value")
        for each, value in zip(declared, fields, strict=True):
            if value and not _fits(value, each.type):
                return Fault(f"'{each.name}' is not a {each.type}: {value}")
        return Fault(MISFIT)


@dataclass(frozen=True)
class CsvWriter(RecordWriter):
    """Writes rows as values in the order of their columns."""

    settings: WriteSettings[CsvOptions]

    def render(self, rows: DataFrame) -> DataFrame:
        delimiter = self.settings.format_options.delimiter
        fields = ", ".join(self._fields(rows))
        options = {
            "delimiter": delimiter,
            "escape": '"',
            "ignoreLeadingWhiteSpace": "false",
            "ignoreTrailingWhiteSpace": "false",
        }
        passed = [F.col(f"`{each}`") for each in self.settings.passed]
        return rows.select(F.to_csv(F.expr(f"struct({fields})"), options).alias(VALUE), *passed)

    def _fields(self, rows: DataFrame) -> Iterator[str]:
        for each in rows.schema:
            if each.name in self.settings.passed:
                continue
            _require_flat(each.name, each.dataType)
            value = f"`{each.name}`"
            if isinstance(each.dataType, TimestampType | TimestampNTZType):
                value = timestamp_text(value)
            elif isinstance(each.dataType, BinaryType):
                value = f"base64({value})"
            yield f"{value} AS `{each.name}`"


def _is_converted(kind: DataType) -> bool:
    return isinstance(kind, (*_TEMPORAL, BinaryType))


def _require_flat(name: str, kind: DataType) -> None:
    if isinstance(kind, _NESTED):
        raise UserError(
            f"column '{name}' of type {kind.simpleString()} cannot be in CSV",
            hint="Use TEXT, or another format.",
        )


def _fits(value: str, kind: str) -> bool:
    """Return whether a number or a timestamp can be read; other types are not checked."""
    name = kind.upper().split("(")[0]
    try:
        if name in {"TINYINT", "SMALLINT", "INT", "BIGINT"}:
            int(value)
        elif name in {"FLOAT", "DOUBLE", "DECIMAL"}:
            float(value)
        elif name == "BOOLEAN":
            return value.lower() in {"true", "false"}
        elif name in {"TIMESTAMP", "TIMESTAMP_NTZ", "DATE"} and not value.isdigit():
            return value[:4].isdigit() and value[4:8:3] == "--"
    except ValueError:
        return False
    return True


def _reader(table: RecordTable[CsvOptions]) -> RecordReader:
    units = declared_units(table.options, table.columns)
    return CsvReader(table.columns, table.format_options.delimiter, units)


CSV = Format(
    FormatSpec("csv", source_options=CsvOptions, sink_options=CsvOptions),
    suffix="csv",
    is_text=True,
    is_line_based=True,
    is_free_text=True,
    reader=_reader,
    writer=CsvWriter,
    encoder=LineEncoder,
    compressions=LINE_COMPRESSIONS,
)
