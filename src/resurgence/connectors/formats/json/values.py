"""JSON values that Spark's parser would guess or change. It reads them as text, and Spark SQL
converts the text to the declared type.

A TIMESTAMP is an ISO 8601 text, or a whole number in the unit of its column. Spark would read any
whole number as seconds, and a time without a date as one of today.

A STRING preserves the text as it was written. Spark preserves JSON strings; a number, an object or
an array it writes anew, and numbers may lose digits. Where that is possible, the value is extracted
from its line. The patterns for this assume a well-formed line: they match brackets and quotes only,
and never backtrack.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from resurgence.connectors.formats.options import RecordSourceOptions, TimestampUnit
from resurgence.graph.table_options import TIMESTAMP_UNIT
from resurgence.graph.values import Column

UNITS: Mapping[str, int] = {
    TimestampUnit.SECONDS: 1,
    TimestampUnit.MILLIS: 1000,
    TimestampUnit.MICROS: 1_000_000,
    TimestampUnit.NANOS: 1_000_000_000,
}
"""How many of a unit are in a second."""
DEFAULT_UNIT = TimestampUnit.SECONDS
_MICROS = 1_000_000
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999."""

_DEEPEST = 32
"""Values that are nested deeper are not extracted from their line."""
_STRING = r'"(?:[^"\\]++|\\.)*+"'


def _nested(depth: int) -> str:
    inner = f"|{_nested(depth - 1)}" if depth else ""
    return rf'[\[{{](?:[^"\[\]{{}}]++|{_STRING}{inner})*+[\]}}]'


_UNQUOTED = rf'(?:[^\s,"\[\]{{}}]++|{_nested(_DEEPEST)})'
_VALUE = f"(?:{_STRING}|{_UNQUOTED})"
_CAPTURED = f"(?:{_STRING}|null|({_UNQUOTED}))"
"""A value; group 1 is the value if it is neither a string nor null."""
_MINUTES = "^(.{13}:[0-9]{2})(?=[Z+-])"
_REWRITTEN_NUMBER = r'^(?:-?[0-9]+\.[0-9]+(?:E-?[0-9]+)?|0|"NaN"|"-?Infinity")$'


def whole_number_range(unit: str) -> tuple[int, int]:
    """Return the least and the greatest whole number, in a unit, that is an instant of the years 1
    to 9999.
    """
    scale = UNITS[unit]
    lowest, highest = -(2**63), 2**63 - 1
    return max(_FIRST_SECOND * scale, lowest), min((_LAST_SECOND + 1) * scale - 1, highest)


def declared_units(
    options: RecordSourceOptions, columns: Sequence[Column], default: str = DEFAULT_UNIT
) -> dict[str, str]:
    """Return the unit of whole numbers in each column, from the options of a table."""
    of_table = options.timestamp_unit or default
    return {
        each.name: options.by_column.get(f"{TIMESTAMP_UNIT}.{each.name.lower()}", of_table)
        for each in columns
    }


@dataclass(frozen=True)
class JsonValue:
    """A value of a declared type. `sql` is the value that Spark has parsed as `parsed_type`.
    `written` is the text of the value in its line: empty for a string, null if it is not needed.
    Both are Spark SQL.
    """

    kind: DataType
    sql: str
    written: str
    unit: str = DEFAULT_UNIT
    depth: int = 0

    @cached_property
    def read(self) -> str:
        """SQL for the value in its declared type; null where it cannot be read."""
        match self.kind:
            case StringType():
                return f"IF({self.written} <> '', {self.written}, {self.sql})"
            case TimestampType():
                return self._instant("TIMESTAMP")
            case TimestampNTZType():
                return self._instant("TIMESTAMP_NTZ")
            case DateType():
                return self._day()
            case StructType() if self._needs_conversion():
                members = ", ".join(f"{each.read} AS `{name}`" for name, each in self._members())
                return f"IF({self.sql} IS NULL, NULL, struct({members}))"
            case ArrayType() if self._needs_conversion():
                return self._zipped(self.sql, self._element(), self._element().read)
            case MapType() if self._needs_conversion():
                return self._map()
        return self.sql

    @cached_property
    def is_misread(self) -> str | None:
        """SQL that is true where a value inside cannot be read; None if all values can."""
        match self.kind:
            case TimestampType() | TimestampNTZType() | DateType():
                return f"({self.sql} IS NOT NULL AND {self.read} IS NULL)"
            case StructType():
                inner = [each.is_misread for _, each in self._members()]
                faults = [each for each in inner if each is not None]
                return f"({' OR '.join(faults)})" if faults else None
            case ArrayType():
                element = self._element()
                if element.is_misread is None:
                    return None
                return f"exists({self._zipped(self.sql, element, element.is_misread)}, it -> it)"
            case MapType():
                element = self._element()
                if element.is_misread is None:
                    return self._has_equal_keys()
                values = self._zipped(f"map_values({self.sql})", element, element.is_misread)
                return f"({self._has_equal_keys()} OR exists({values}, it -> it))"
        return None

    @cached_property
    def is_doubtful(self) -> str | None:
        """SQL that is true where `written` is needed; None if it never is."""
        match self.kind:
            case StringType():
                return (
                    f"(startswith({self.sql}, '{{') OR startswith({self.sql}, '[') OR"
                    f" {self.sql} < ':' AND {self.sql} RLIKE {_literal(_REWRITTEN_NUMBER)})"
                )
            case TimestampType() | TimestampNTZType():
                return f"NOT {self._is_dated()}"
            case StructType():
                members = [each.is_doubtful for _, each in self._members()]
                doubtful = [each for each in members if each is not None]
                return f"({' OR '.join(doubtful)})" if doubtful else None
            case ArrayType() | MapType():
                element = self._element()
                if element.is_doubtful is None:
                    return None
                is_array = isinstance(self.kind, ArrayType)
                values = self.sql if is_array else f"map_values({self.sql})"
                return f"exists({values}, {element.sql} -> {element.is_doubtful})"
        return None

    def found_in(self, line: str, name: str) -> str | None:
        """Return SQL for the text of the value as a member of the object in a line; null where it
        is not needed. None if it never is.
        """
        if self.is_doubtful is None:
            return None
        condition = self.is_doubtful
        if isinstance(self.kind, TimestampType | TimestampNTZType):
            # Nearly always false, and cheaper than the extraction.
            condition += f" AND contains({line}, concat('\"', {self.sql}, '\"'))"
        return f"IF({condition}, {member_written(line, name)}, NULL)"

    # ---------------------------------------------------------------- time

    @property
    def is_temporal(self) -> bool:
        return isinstance(self.kind, TimestampType | TimestampNTZType | DateType)

    def _is_dated(self) -> str:
        # Only Spark's calendar has a year 0.
        return (
            f"(substring({self.sql}, 5, 1) = '-' AND substring({self.sql}, 8, 1) = '-'"
            f" AND {self.sql} >= '0001')"
        )

    def _instant(self, kind: str) -> str:
        return (
            f"CASE WHEN {self._is_dated()} THEN {self._dated(kind)}"
            f" WHEN {self.written} = '' THEN NULL ELSE CAST({self._counted()} AS {kind}) END"
        )

    def _dated(self, kind: str) -> str:
        """Return SQL for an instant written as in ISO 8601."""
        # Spark reads neither lower case nor a zone directly after minutes.
        usual = f"regexp_replace(upper({self.sql}), {_literal(_MINUTES)}, '$1:00')"
        return f"coalesce(try_cast({self.sql} AS {kind}), try_cast({usual} AS {kind}))"

    def _counted(self) -> str:
        """Return SQL for an instant written as a whole number."""
        number = f"try_cast({self.sql} AS BIGINT)"
        least, greatest = whole_number_range(self.unit)
        scale = UNITS[self.unit]
        if scale <= _MICROS:
            micros = f"{number} * {_MICROS // scale}L"
        else:
            each = scale // _MICROS
            micros = f"{number} div {each}L - IF({number} % {each}L < 0, 1L, 0L)"
        # Spark has no literal for the least BIGINT.
        in_range = f"{number} > {max(least, -(2**63) + 1) - 1}L AND {number} <= {greatest}L"
        return f"IF({in_range}, timestamp_micros({micros}), NULL)"

    def _day(self) -> str:
        day = f"try_cast(substring({self.sql}, 1, 10) AS DATE)"
        is_instant = f"{self._dated('TIMESTAMP_NTZ')} IS NOT NULL"
        return f"IF({self._is_dated()} AND {is_instant}, {day}, NULL)"

    # ---------------------------------------------------------------- nested values

    def _needs_conversion(self) -> bool:
        """Return whether it contains a value that Spark's parser would change."""
        match self.kind:
            case StringType() | TimestampType() | TimestampNTZType() | DateType():
                return True
            case StructType():
                return any(each._needs_conversion() for _, each in self._members())
            case ArrayType() | MapType():
                return self._element()._needs_conversion()
        return False

    def _members(self) -> list[tuple[str, JsonValue]]:
        assert isinstance(self.kind, StructType)
        return [
            (
                each.name,
                JsonValue(
                    each.dataType,
                    f"{self.sql}.`{each.name}`",
                    member_written(self.written, each.name),
                    self.unit,
                    self.depth,
                ),
            )
            for each in self.kind
        ]

    def _element(self) -> JsonValue:
        """Return an element of an array, or a value of a map, inside a lambda."""
        assert isinstance(self.kind, ArrayType | MapType)
        kind = self.kind.elementType if isinstance(self.kind, ArrayType) else self.kind.valueType
        value, written = f"value{self.depth}", f"written{self.depth}"
        return JsonValue(kind, value, written, self.unit, self.depth + 1)

    def _zipped(self, values: str, element: JsonValue, result: str) -> str:
        """Return SQL that evaluates `result` for each element and its text."""
        is_array = isinstance(self.kind, ArrayType)
        before, end = (r"\s*+", r"\]") if is_array else (rf"\s*+{_STRING}\s*+:\s*+", r"\}")
        pattern = _literal(rf"\G{before}{_CAPTURED}\s*+(?:,|{end})")
        listed = f"regexp_extract_all(substring({self.written}, 2), {pattern}, 1)"
        none = "CAST(array() AS ARRAY<STRING>)"
        texts = f"IF({self.is_doubtful}, {listed}, {none})" if self.is_doubtful else none
        return f"zip_with({values}, {texts}, ({element.sql}, {element.written}) -> {result})"

    def _map(self) -> str:
        element = self._element()
        values = self._zipped(f"map_values({self.sql})", element, element.read)
        keys = f"map_keys({self.sql})"
        return f"IF({self._has_equal_keys()}, NULL, map_from_arrays({keys}, {values}))"

    def _has_equal_keys(self) -> str:
        keys = f"map_keys({self.sql})"
        return f"(size(array_distinct({keys})) < size({keys}))"


def is_out_of_range(instant: str) -> str:
    """Return SQL that is true for a TIMESTAMP or DATE outside of the years 1 to 9999, and for
    null.
    """
    return (
        f"NOT coalesce({instant} >= TIMESTAMP_NTZ '0001-01-01 00:00:00'"
        f" AND {instant} < TIMESTAMP_NTZ '+10000-01-01 00:00:00', false)"
    )


def parsed_type(kind: DataType) -> str:
    """Return the type, in Spark SQL, as which Spark's parser reads a value."""
    match kind:
        case TimestampType() | TimestampNTZType() | DateType():
            return "STRING"
        case StructType():
            members = ", ".join(f"`{each.name}`: {parsed_type(each.dataType)}" for each in kind)
            return f"STRUCT<{members}>"
        case ArrayType():
            return f"ARRAY<{parsed_type(kind.elementType)}>"
        case MapType():
            return f"MAP<{kind.keyType.simpleString()}, {parsed_type(kind.valueType)}>"
    return kind.simpleString()


def member_written(text: str, name: str) -> str:
    """Return SQL for the text of a member of the object in a text; empty if it is a string, null,
    missing or duplicate.
    """
    key = rf"\Q{json.dumps(name, ensure_ascii=False)}\E\s*+:"
    others = rf"(?!{key}){_STRING}\s*+:\s*+{_VALUE}"
    after = rf"(?=(?:\s*+,\s*+{others})*+\s*+\}})"
    pattern = rf"^\s*+\{{\s*+(?:{others}\s*+,\s*+)*+{key}\s*+{_CAPTURED}{after}"
    return f"regexp_extract({text}, {_literal(pattern)}, 1)"


@cache
def data_type(kind: str) -> DataType:
    """Return the type with this name in Spark SQL. Spark must be running, for its parser."""
    schema = StructType.fromDDL(f"value {kind}")
    assert isinstance(schema, StructType)
    return schema[0].dataType


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
